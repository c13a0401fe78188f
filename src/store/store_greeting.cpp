#include "store/store_greeting.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "io/system_environment.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::size_t greeting_nonce_bytes = 32;
constexpr std::byte greeting_version{1};
constexpr std::string_view greeting_magic = "MWSTORE";
constexpr std::string_view store_server_role = "manyworlds store: server";
constexpr std::string_view store_client_role = "manyworlds store: client";

constexpr std::byte greeting_goes_on{0};
constexpr std::byte server_has_none{1};
constexpr std::byte proof_is_wrong{2};

static_assert(greeting_magic.size() + 1 + greeting_nonce_bytes == store_greeting_bytes);
static_assert(static_cast<std::byte>(greeting_magic.front()) == store_greeting_begin);

using greeting_message = std::vector<std::byte>;

greeting_message with_nonce(greeting_message head) {
  const std::size_t at = head.size();
  head.resize(at + greeting_nonce_bytes);
  system_environment().fill_random(std::span(head).subspan(at));
  return head;
}

void append_bytes(greeting_message& to, std::span<const std::byte> more) {
  to.insert(to.end(), more.begin(), more.end());
}

task<bool> receive_whole(stream& s, std::span<std::byte> into) {
  const io_result got = co_await s.receive_exactly(into);
  co_return got.ok() && got.count() == into.size();
}

}  // namespace

std::string_view text_of(store_greeting_end end) noexcept {
  switch (end) {
    case store_greeting_end::proven:
      return "both know the secret";
    case store_greeting_end::no_secret:
      return "the store has no secret, and this client has one";
    case store_greeting_end::wrong_secret:
      return "client and store have different secrets";
    case store_greeting_end::broken:
      break;
  }
  return "the greeting was broken off";
}

task<store_greeting_end> greet_store(stream& server, const secret_text& secret) {
  MW_ASSERT(!secret.empty(), "a greeting proves a secret");
  greeting_message said;
  append_bytes(said, std::as_bytes(std::span(greeting_magic)));
  said.push_back(greeting_version);
  said = with_nonce(std::move(said));
  io_result sent = co_await server.send_all(said);
  if (!sent.ok()) co_return store_greeting_end::broken;

  std::byte answer{};
  bool came = co_await receive_whole(server, std::span(&answer, 1));
  if (!came) co_return store_greeting_end::broken;
  if (answer == server_has_none) co_return store_greeting_end::no_secret;
  if (answer != greeting_goes_on) co_return store_greeting_end::broken;
  greeting_message theirs(greeting_nonce_bytes);
  came = co_await receive_whole(server, theirs);
  if (!came) co_return store_greeting_end::broken;
  secret_proof proof{};
  came = co_await receive_whole(server, proof);
  if (!came) co_return store_greeting_end::broken;
  append_bytes(said, theirs);
  if (!same_proof(proof, prove(secret, store_server_role, said)))
    co_return store_greeting_end::wrong_secret;

  append_bytes(said, proof);
  const secret_proof mine = prove(secret, store_client_role, said);
  sent = co_await server.send_all(mine);
  if (!sent.ok()) co_return store_greeting_end::broken;
  came = co_await receive_whole(server, std::span(&answer, 1));
  if (!came) co_return store_greeting_end::broken;
  co_return answer == greeting_goes_on ? store_greeting_end::proven
  : answer == proof_is_wrong           ? store_greeting_end::wrong_secret
                                       : store_greeting_end::broken;
}

task<store_greeting_end> answer_greeting(stream& client, const secret_text& secret,
                                         std::span<const std::byte> begun) {
  if (begun.size() > store_greeting_bytes) co_return store_greeting_end::broken;
  greeting_message said(store_greeting_bytes);
  std::copy(begun.begin(), begun.end(), said.begin());
  bool came = co_await receive_whole(client, std::span(said).subspan(begun.size()));
  if (!came ||
      std::memcmp(said.data(), greeting_magic.data(), greeting_magic.size()) != 0 ||
      said[greeting_magic.size()] != greeting_version) {
    co_return store_greeting_end::broken;
  }
  io_result sent;
  if (secret.empty()) {
    sent = co_await client.send_all(std::span(&server_has_none, 1));
    co_return sent.ok() ? store_greeting_end::no_secret : store_greeting_end::broken;
  }
  const greeting_message nonce = with_nonce({});
  append_bytes(said, nonce);
  const secret_proof mine = prove(secret, store_server_role, said);
  greeting_message answer{greeting_goes_on};
  append_bytes(answer, nonce);
  append_bytes(answer, mine);
  sent = co_await client.send_all(answer);
  if (!sent.ok()) co_return store_greeting_end::broken;

  secret_proof theirs{};
  came = co_await receive_whole(client, theirs);
  if (!came) co_return store_greeting_end::broken;
  append_bytes(said, mine);
  const bool is_proven = same_proof(theirs, prove(secret, store_client_role, said));
  const std::byte verdict = is_proven ? greeting_goes_on : proof_is_wrong;
  sent = co_await client.send_all(std::span(&verdict, 1));
  if (!sent.ok()) co_return store_greeting_end::broken;
  co_return is_proven ? store_greeting_end::proven : store_greeting_end::wrong_secret;
}

}  // namespace manyworlds::inline v0::detail
