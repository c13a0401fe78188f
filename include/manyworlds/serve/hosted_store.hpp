// Hosted store: a TCPStore server on a runtime's service thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "manyworlds/inline_text.hpp"
#include "manyworlds/world/runtime.hpp"

namespace manyworlds::inline v0 {

namespace detail {
class tcp_store_server;
}  // namespace detail

/// Options of a hosted store.
struct hosted_store_options {
  /// What clients must prove to know before anything else is said
  /// (`tcp_store_options::secret`). PyTorch's clients cannot. Empty: nothing is proven.
  secret_text secret = {};
  /// Whether the network is trusted, so that no secret is needed beyond loopback.
  bool insecure = false;
};

/// Serves a store from construction to destruction. Its clients are `tcp_store` and
/// PyTorch's own. A user coroutine that blocks its thread does not delay it. It dies
/// with its process: worlds that are formed do not notice, others cannot form until a
/// store is there again. Connections that it refuses are reported in the runtime's log.
///
///     mw::runtime rt;
///     mw::hosted_store host(rt, "127.0.0.1:0");
///     mw::tcp_store store(rt, host.address());
class hosted_store {
 public:
  /// Takes an address as "127.0.0.1:29500", or a name as MASTER_ADDR has it:
  /// "localhost:29500", "node1:29500". Of a name it takes the first address that is
  /// this machine's, after up to 10 s of looking the name up. Port 0 chooses one.
  /// PyTorch's protocol has no authentication: beyond loopback a secret or `insecure`
  /// must be set.
  ///
  /// Errors: std::invalid_argument for what is neither, for a name that has no address,
  /// and beyond loopback without both; std::system_error naming the address if it is in
  /// use or not ours; world_error (`forked`).
  hosted_store(runtime& rt, std::string_view address, hosted_store_options options);
  hosted_store(runtime& rt, std::string_view address, bool insecure = false)
      : hosted_store(rt, address, hosted_store_options{.insecure = insecure}) {}
  hosted_store(const hosted_store&) = delete;
  hosted_store& operator=(const hosted_store&) = delete;
  /// Ends all connections first.
  ~hosted_store();

  /// Returns the address, with the port that was chosen.
  [[nodiscard]] std::string address() const;
  /// Returns how many connections of clients are open. Thread: any.
  [[nodiscard]] std::size_t connections() const noexcept;

 private:
  runtime& runtime_;
  std::shared_ptr<detail::tcp_store_server> server_;
  started<void> serving_;
};

}  // namespace manyworlds::inline v0
