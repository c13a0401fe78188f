#include "link/hello.hpp"

#include <fmt/format.h>

#include <cstring>

#include "link/wire_address.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::uint32_t magic = 0x444c574d;  // "MWLD"
constexpr std::size_t longest_frame = 1024;
constexpr std::size_t nonce_size = 16;
constexpr std::string_view client_role = "client";
constexpr std::string_view server_role = "server";

task<void> send_frame(stream& s, bytes frame) {
  MW_ASSERT(frame.size() <= longest_frame, "a frame of a hello is one that peers take");
  wire_writer out;
  out.put(static_cast<std::uint32_t>(frame.size())).put_raw(frame);
  const bytes whole = out.take();
  const io_result sent = co_await s.send_all(whole);
  if (!sent.ok()) {
    throw link_error(cause::connection_lost,
                     fmt::format("the peer hung up during the hello: {}",
                                 std::strerror(sent.error())));
  }
}

task<bytes> receive_frame(stream& s) {
  std::uint32_t size = 0;
  io_result got = co_await s.receive_exactly(std::as_writable_bytes(std::span(&size, 1)));
  if (!got.ok() || got.count() != sizeof size) {
    throw link_error(cause::connection_lost, "the peer hung up during the hello");
  }
  if (size > longest_frame) {
    throw link_error(
        cause::protocol_error,
        fmt::format("the peer does not speak this protocol: its first frame announces "
                    "{} bytes",
                    size));
  }
  bytes frame(size);
  got = co_await s.receive_exactly(frame);
  if (!got.ok() || got.count() != size) {
    throw link_error(cause::connection_lost, "the peer hung up during the hello");
  }
  co_return frame;
}

bytes join(std::span<const std::byte> a, std::span<const std::byte> b) {
  bytes joined(a.begin(), a.end());
  joined.insert(joined.end(), b.begin(), b.end());
  return joined;
}

bytes encode(const hello& h, bool has_secret, std::span<const std::byte> nonce) {
  wire_writer out;
  out.put(magic).put(h.version).put(h.purpose).put(std::uint8_t{has_secret});
  out.put_raw(nonce);
  write(h.self, out);
  out.put_raw(h.expected.raw()).put(h.world_id).put(h.rank);
  return out.take();
}

struct decoded_hello {
  hello words;
  bool has_secret = false;
  bool known_version = false;
};

decoded_hello decode(std::span<const std::byte> frame) {
  wire_reader in(frame);
  if (in.get<std::uint32_t>() != magic) throw wire_error("not a hello");
  decoded_hello d;
  d.words.version = in.get<std::uint16_t>();
  // Another version may lay out the rest differently, so only its number is read.
  d.known_version = d.words.version == hello::current_version;
  if (!d.known_version) return d;
  d.words.purpose = in.get_enum(connection_purpose::query);
  d.has_secret = in.get<std::uint8_t>() != 0;
  in.take(nonce_size);
  d.words.self = read_address(in);
  d.words.expected = read_incarnation(in);
  d.words.world_id = in.get<std::uint64_t>();
  d.words.rank = in.get<std::int32_t>();
  in.expect_end();
  return d;
}

[[noreturn]] void throw_status(hello_status status, std::uint16_t version,
                               const std::string& where) {
  switch (status) {
    case hello_status::wrong_version:
      throw link_error(cause::wrong_version,
                       fmt::format("{} speaks protocol version {}, this process {}",
                                   where, version, hello::current_version));
    case hello_status::wrong_secret:
      throw link_error(
          cause::wrong_secret,
          fmt::format("{} has another secret, or only one of both sides has a secret",
                      where));
    case hello_status::another_process:
      throw link_error(cause::peer_died,
                       fmt::format("another process answers at {}", where));
    default:
      throw link_error(cause::protocol_error,
                       fmt::format("{} sent an unexpected answer", where));
  }
}

}  // namespace

task<std::optional<process_address>> greeter::greet(stream& s, hello words) {
  words.self = self_;
  const std::string where = s.peer_address().text();
  bytes nonce(nonce_size);
  env_.fill_random(nonce);
  const bytes first = encode(words, !secret_.empty(), nonce);
  co_await send_frame(s, first);

  const bytes answer = co_await receive_frame(s);
  process_address peer;
  try {
    wire_reader in(answer);
    const auto status = in.get_enum(hello_status::already_dialling);
    const auto version = in.get<std::uint16_t>();
    // An answer that the expected process is gone must prove the secret, which this one
    // cannot.
    if (status == hello_status::another_process)
      throw wire_error(
          "the answer says, without a proof, that another process listens there");
    if (status != hello_status::welcome) throw_status(status, version, where);
    peer = read_address(in);
    in.take(nonce_size);
    const bytes proven =
        join(first, std::span(answer).first(answer.size() - in.rest().size()));
    secret_proof proof;
    const auto raw = in.take(proof.size());
    std::copy(raw.begin(), raw.end(), proof.begin());
    if (!same_proof(proof, prove(secret_, server_role, proven))) {
      throw_status(hello_status::wrong_secret, version, where);
    }
    // Otherwise the peer could take the place of another process.
    if (words.expected.is_set() && peer.id != words.expected) {
      throw_status(hello_status::another_process, version, where);
    }
  } catch (const wire_error& e) {
    throw link_error(cause::protocol_error, where + ": " + e.what());
  }

  const secret_proof mine = prove(secret_, client_role, join(first, answer));
  co_await send_frame(s, bytes(mine.begin(), mine.end()));
  const bytes verdict = co_await receive_frame(s);
  if (verdict.size() != 1)
    throw link_error(cause::protocol_error, where + ": its verdict is not one byte");
  const auto status = static_cast<hello_status>(verdict[0]);
  if (status == hello_status::already_dialling) co_return std::nullopt;
  if (status != hello_status::welcome)
    throw_status(status, hello::current_version, where);
  co_return peer;
}

task<std::optional<hello>> greeter::answer(
    stream& s, const std::function<hello_status(const hello&)>& decide) {
  const std::string where = s.peer_address().text();
  const bytes first = co_await receive_frame(s);
  decoded_hello d;
  try {
    d = decode(first);
  } catch (const wire_error& e) {
    throw link_error(cause::protocol_error, where + ": " + e.what());
  }
  hello_status early = hello_status::welcome;
  if (!d.known_version) {
    early = hello_status::wrong_version;
  } else if (d.has_secret == secret_.empty()) {
    early = hello_status::wrong_secret;
  }
  wire_writer out;
  out.put(early).put(hello::current_version);
  if (early != hello_status::welcome) {
    co_await send_frame(s, out.take());
    throw_status(early, d.words.version, where);
  }

  write(self_, out);
  bytes nonce(nonce_size);
  env_.fill_random(nonce);
  out.put_raw(nonce);
  const secret_proof mine = prove(secret_, server_role, join(first, out.view()));
  out.put_raw(mine);
  const bytes answer = out.take();
  co_await send_frame(s, answer);

  const bytes proof = co_await receive_frame(s);
  secret_proof theirs{};
  if (proof.size() == theirs.size())
    std::copy(proof.begin(), proof.end(), theirs.begin());
  const bool proven =
      proof.size() == theirs.size() &&
      same_proof(theirs, prove(secret_, client_role, join(first, answer)));
  const bool is_meant = !d.words.expected.is_set() || d.words.expected == self_.id;
  const hello_status verdict = !proven    ? hello_status::wrong_secret
                               : is_meant ? decide(d.words)
                                          : hello_status::another_process;
  co_await send_frame(s, bytes(1, static_cast<std::byte>(verdict)));
  if (!proven) throw_status(verdict, d.words.version, where);
  if (verdict != hello_status::welcome) co_return std::nullopt;
  co_return std::move(d.words);
}

}  // namespace manyworlds::inline v0::detail
