// Store relay: lets clients that cannot prove a secret, such as PyTorch's, use a store
// that demands it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "io/stream.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/inline_text.hpp"

namespace manyworlds::inline v0::detail {

struct store_relay_options {
  /// Where it listens: a loopback address alone, since its clients prove nothing.
  socket_address listen = socket_address::loopback(0);
  /// The longest time to reach the far store and to prove the secret.
  duration connect_limit = std::chrono::seconds(10);
  /// The most connections; further ones are closed as soon as they are accepted.
  std::size_t connections = 4096;
  /// Receives one line when the far store cannot be reached or has another secret.
  /// Thread: the reactor's.
  std::function<void(std::string_view)> report;
};

/// Listens on this machine, greets the far store for each connection, and passes bytes
/// both ways. The connection is closed if the far store cannot be reached.
/// Thread: the reactor's, but for the constructor and `address`.
class store_relay {
 public:
  /// Takes the far store's "host:port". Errors: std::invalid_argument if it would listen
  /// beyond loopback, or without a secret; std::system_error naming the address.
  store_relay(reactor& home, std::string endpoint, const secret_text& secret,
              store_relay_options options = {});

  /// Returns the address with the port that was chosen.
  [[nodiscard]] socket_address address() const noexcept { return address_; }
  /// Accepts and passes on until `stop()`, or until it is cancelled. Precondition: it is
  /// called once, with the reactor as its home.
  task<void> serve();
  void stop() noexcept { stopping_.set(); }
  [[nodiscard]] std::size_t connections() const noexcept { return connections_; }

 private:
  task<void> accept(scope& relayed);
  task<void> relay(socket accepted);
  task<stream> reach();
  static task<void> pass(stream& from, stream& to);

  reactor& home_;
  const std::string endpoint_;
  const secret_text secret_;
  const store_relay_options options_;
  listener listener_;
  socket_address address_;
  event stopping_;
  std::size_t connections_ = 0;
};

}  // namespace manyworlds::inline v0::detail
