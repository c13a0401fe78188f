// TCPStore server: serves PyTorch's store protocol, for our clients and for theirs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "io/stream.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/store/store.hpp"
#include "store/key_value_table.hpp"

namespace manyworlds::inline v0::detail {

struct tcp_store_server_options {
  store_limits limits;
  /// The most connections; further ones are closed as soon as they are accepted.
  std::size_t connections = 16 * 1024;
  /// Limit of all keys and values together. A client that would exceed it loses its
  /// connection.
  std::size_t bytes = std::size_t{1} << 30;
  /// Limit of what is held for all connections together: requests half received, keys
  /// waited for, replies not taken. A client that would exceed it loses its connection.
  std::size_t connection_bytes = std::size_t{1} << 29;
  /// The longest time from the connection to the end of its handshake.
  duration handshake_limit = std::chrono::seconds(10);
  /// The longest time without a byte moved within a begun request, or with replies to
  /// take.
  duration stall_limit = std::chrono::seconds(10);
  /// What a client must prove to know, in a greeting ahead of the protocol. PyTorch's
  /// clients cannot; a `store_relay` beside them does. Without a secret the server
  /// listens on loopback only, unless it is `insecure`.
  secret_text secret = {};
  bool insecure = false;
  /// Receives one line when a connection is ended for a reason, and when descriptors
  /// run out. Thread: the reactor's.
  std::function<void(std::string_view)> report;
};

/// Serves a table of keys on one reactor, with a task or two per connection and no
/// threads. Any reactor can host it:
///
///     tcp_store_server server(reactor, socket_address::loopback(29500));
///     scope.spawn(server.serve());
///
/// The protocol has no authentication: without a secret any process that reaches the
/// address can read and write the keys. A client's mistake (another protocol, lengths
/// beyond the limits) ends its connection and is reported; no other connection notices.
/// Thread: the reactor's, except for the constructor and `address`. Lifetime: the data
/// lives as long as the object.
class tcp_store_server {
 public:
  /// Starts to listen; port 0 chooses a port. Errors: std::system_error naming the
  /// address; std::invalid_argument if it is open to the network without a secret.
  tcp_store_server(reactor& home, const socket_address& address,
                   tcp_store_server_options options = {});
  /// Listens on several addresses. Port 0 in all but the first chooses the first's port.
  tcp_store_server(reactor& home, std::span<const socket_address> addresses,
                   tcp_store_server_options options = {});
  /// Serves at listeners that are there already, such as descriptors that another program
  /// handed on. Precondition: at least one, and all are open on `home`.
  tcp_store_server(reactor& home, std::vector<listener> listeners,
                   tcp_store_server_options options = {});

  /// Returns the first address, with the port that was chosen.
  [[nodiscard]] socket_address address() const noexcept { return address_; }

  /// Accepts and serves until `stop()`, or until it is cancelled. When it has ended,
  /// nothing is left of any connection and the port is free. Precondition: it is called
  /// once, with the reactor as its home.
  task<void> serve();
  /// Makes `serve` end.
  void stop() noexcept { stopping_.set(); }

  /// Returns how many connections are open. Thread: any.
  [[nodiscard]] std::size_t connections() const noexcept { return connections_.load(); }
  /// Returns how many connections were ended because of what they sent, or because
  /// there were too many.
  [[nodiscard]] std::size_t refused() const noexcept { return refused_; }
  /// Returns what counts towards `connection_bytes`.
  [[nodiscard]] std::size_t held_bytes() const noexcept { return held_bytes_; }
  [[nodiscard]] key_value_table& table() noexcept { return table_; }

 private:
  friend class tcp_store_session;

  task<void> accept(listener& at, scope& sessions);
  task<void> serve_one(socket accepted);
  void report(std::string_view line) const;
  void refuse(const stream& client, std::string_view reason);

  reactor& home_;
  tcp_store_server_options options_;
  std::vector<listener> listeners_;
  socket_address address_;
  key_value_table table_;
  event stopping_;
  std::atomic<std::size_t> connections_{0};
  std::size_t refused_ = 0;
  std::size_t held_bytes_ = 0;
  /// The host of each connection that speaks the legacy dialect.
  std::unordered_multiset<std::string> legacy_hosts_;
  /// The session that asked last. It may be gone.
  const void* last_speaker_ = nullptr;
};

}  // namespace manyworlds::inline v0::detail
