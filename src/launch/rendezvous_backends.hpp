// Rendezvous backends: which agent coordinates.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/launch/rendezvous.hpp"

namespace manyworlds::inline v0::detail {

/// When to try for a seat again that is held in silence, by a port or by a lock: often at
/// first and each second later, and at once when the coordinator has died.
class seat_tries {
 public:
  [[nodiscard]] task<void> until_next() {
    co_await when_any(died_.wait(), sleep_for(pause_));
    pause_ = died_.is_set() ? shortest : std::min(2 * pause_, longest);
    died_.reset();
  }
  void note_death() noexcept { died_.set(); }

 private:
  static constexpr duration shortest = std::chrono::milliseconds(20);
  static constexpr duration longest = std::chrono::seconds(1);
  event died_;
  duration pause_ = shortest;
};

/// A seat that cannot be lost while its process lives. It remembers nothing: the agents
/// know the last round.
class lasting_seat : public coordinator_seat {
 public:
  task<std::string> read() override { co_return std::string(); }
  task<bool> publish(std::string) override { co_return true; }
  task<bool> close() override { co_return true; }
  task<void> lost() override { co_await sleep_for(duration::max()); }
};

/// Makes the backend that the options name. Errors: rendezvous_error (`bad_options`);
/// what its maker throws.
[[nodiscard]] std::unique_ptr<rendezvous_backend> make_backend(
    runtime& rt, const rendezvous_options& options);

/// The agent that can listen at the endpoint coordinates, and hosts the store there.
[[nodiscard]] std::unique_ptr<rendezvous_backend> make_tcp_backend(
    runtime& rt, const rendezvous_options& options);

/// The agent that holds the lease of a key in etcd coordinates. The endpoint is that of
/// an `etcd_store`.
[[nodiscard]] std::unique_ptr<rendezvous_backend> make_etcd_backend(
    runtime& rt, const rendezvous_options& options);

/// The agent that holds a lock in a folder, which is the endpoint, coordinates.
[[nodiscard]] std::unique_ptr<rendezvous_backend> make_file_backend(
    runtime& rt, const rendezvous_options& options);

/// Node 0 serves the store at the endpoint; the first node that has an agent of ours
/// coordinates.
[[nodiscard]] std::unique_ptr<rendezvous_backend> make_manual_backend(
    runtime& rt, const rendezvous_options& options);

/// This agent coordinates, if the run has no other; see `make_tcp_backend` otherwise.
[[nodiscard]] std::unique_ptr<rendezvous_backend> make_standalone_backend(
    runtime& rt, const rendezvous_options& options);

}  // namespace manyworlds::inline v0::detail
