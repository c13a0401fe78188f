// Attempt store: the workers' store, and the way of a node's workers to it.
#pragma once

#include <memory>
#include <string>

#include "launch/meeting_store.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/io/socket_address.hpp"
#include "manyworlds/launch/launch_agent.hpp"
#include "store/store_relay.hpp"

namespace manyworlds::inline v0::detail {

/// The leader serves a store for each attempt, so that nothing of a dead one can be read.
/// Thread: the runtime's reactor. Lifetime: what it is made with outlives it.
class attempt_store {
 public:
  /// Errors: std::invalid_argument if the job's host is no numeric address, or is beyond
  /// loopback without a secret or the word that the network is trusted.
  attempt_store(runtime& rt, const launch_options& job);
  attempt_store(const attempt_store&) = delete;
  attempt_store& operator=(const attempt_store&) = delete;
  ~attempt_store() { end(); }

  /// Serves a new store in place of the last one, and returns its address. Errors:
  /// std::system_error naming the address, where it cannot be listened on within 2 s.
  [[nodiscard]] task<std::string> serve();
  [[nodiscard]] bool is_served() const noexcept { return served_ != nullptr; }
  /// Serves no longer.
  void end_serving() noexcept { served_.reset(); }
  /// Returns where workers of this node reach the store at `address` that cannot prove a
  /// secret, as PyTorch's: a relay on loopback, if there is one. The relay runs in the
  /// scope until `end`, or the next call.
  [[nodiscard]] std::string reach(const std::string& address, scope& relaying);
  void end() noexcept;

 private:
  runtime& runtime_;
  const rendezvous_options& how_;
  const socket_address listen_;
  std::unique_ptr<served_store> served_;
  std::shared_ptr<store_relay> relay_;
};

}  // namespace manyworlds::inline v0::detail
