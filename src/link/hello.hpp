// Hello: the first words on every connection. Version, purpose, identity, proof of the
// secret.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "io/stream.hpp"
#include "link/link_error.hpp"
#include "link/secret.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/io/environment.hpp"
#include "manyworlds/process_address.hpp"

namespace manyworlds::inline v0::detail {

/// Purpose of a connection.
enum class connection_purpose : std::uint8_t {
  link,   ///< the one control connection between two processes
  data,   ///< the frames of one world between two members
  query,  ///< one question, one answer: who holds a rank
};

/// The dialling side's identity and request.
struct hello {
  static constexpr std::uint16_t current_version = 3;

  std::uint16_t version = current_version;
  connection_purpose purpose = connection_purpose::link;
  process_address self;
  /// The process it wants; not set for any process that listens there.
  incarnation expected;
  /// Set for a data connection.
  std::uint64_t world_id = 0;
  rank_t rank = no_rank;
};

/// The answering side's decision.
enum class hello_status : std::uint8_t {
  welcome,
  wrong_version,
  wrong_secret,
  another_process,   ///< the expected incarnation does not live here
  already_dialling,  ///< two processes dialled each other; the other connection is the
                     ///< one to keep
};

/// Runs both sides of a hello. `decide` is asked about an authenticated peer before it
/// is welcomed.
///
/// The exchange: hello with a nonce; answer with a nonce and the server's proof over
/// both; the client's proof; the decision. Each side proves knowledge of the secret
/// without showing it, and a recorded exchange proves nothing later. Frames carry their
/// length and are at most 1 KiB.
class greeter {
 public:
  greeter(environment& env, process_address self, secret_text secret)
      : env_(env), self_(std::move(self)), secret_(secret) {}

  /// Greets over a fresh connection. Returns the peer, or nothing if the peer says
  /// `already_dialling`. Errors: link_error.
  [[nodiscard]] task<std::optional<process_address>> greet(stream& s, hello words);

  /// Answers a hello. Returns what the peer said once it is authenticated and welcome,
  /// or nothing if `decide` refused it. The caller bounds the peer's silence
  /// (`within`). Errors: link_error.
  [[nodiscard]] task<std::optional<hello>> answer(
      stream& s, const std::function<hello_status(const hello&)>& decide);

  [[nodiscard]] const process_address& self() const noexcept { return self_; }
  void set_endpoint(const socket_address& endpoint) noexcept {
    self_.endpoint = endpoint;
  }

 private:
  environment& env_;
  process_address self_;
  secret_text secret_;
};

}  // namespace manyworlds::inline v0::detail
