// Connect: a supervised world of two with an acceptor of a service.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/serve/keep.hpp"
#include "manyworlds/serve/waiting_list.hpp"
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::inline v0 {

/// Describes what to connect to. Trivially destructible, so that it can be written in
/// an awaited expression.
struct connect_options {
  /// The name that acceptors use.
  service_name service = {};
  /// Options of the world, without name, rank and size: `connect` sets these.
  world_options world = {};
};

/// Receives the record of a connector's world. If the connector's own store does not
/// answer, that world cannot be formed; `trouble` reports this store's trouble in its
/// place.
class desk_store final : public store {
 public:
  explicit desk_store(const store& entered_in) : entered_in_(entered_in) {}

  [[nodiscard]] std::string address() const override { return entered_in_.address(); }
  [[nodiscard]] std::string trouble() const override { return entered_in_.trouble(); }
  [[nodiscard]] task<store_reply> perform(store_request request) override {
    return under_.perform(std::move(request));
  }

 private:
  const store& entered_in_;
  memory_store under_;
};

/// One connector of a service. It enters the waiting list when it forms a world, and
/// again when no world comes of it.
class connector {
 public:
  static constexpr std::string_view name = "connect";

  /// Errors: world_error (`invalid_argument`).
  connector(runtime& rt, store& st, const connect_options& options);
  connector(const connector&) = delete;
  connector& operator=(const connector&) = delete;
  ~connector();

  /// Returns the next world, not yet formed. Precondition: its predecessor is gone.
  [[nodiscard]] world describe();
  [[nodiscard]] task<void> form(world& w);

 private:
  /// Times between two looks at whether the entry still stands, doubled each time.
  static constexpr duration first_look = std::chrono::milliseconds(900);
  static constexpr duration longest_look = std::chrono::seconds(5);
  static_assert(first_look < longest_look);
  /// An acceptor that dies right after taking a peer is not worth a warning.
  static constexpr int told_when_taken = 2;

  [[nodiscard]] task<void> stay_announced();
  /// Returns when to look again.
  [[nodiscard]] task<duration> announce(waiting_peer self, bool is_new);
  void note_waiting();
  void note_taken_in_vain();
  void note_store(const char* trouble);

  runtime& runtime_;
  const connect_options options_;
  const std::uint64_t id_;
  const world_options world_options_;
  const std::string key_;
  waiting_list list_;
  /// Made anew for each world.
  std::optional<desk_store> desk_;
  duration pause_ = first_look;
  bool is_missing_ = false;
  /// Applies to the world that is being formed.
  bool is_waiting_told_ = false;
  /// Counts how often the entry was gone while one world was being formed.
  int taken_in_vain_ = 0;
  bool store_answers_ = true;
};

template <class Body>
task<void> run_connect(runtime& rt, store& st, connect_options options, Body body,
                       after_close closing) {
  connector way(rt, st, options);
  co_await supervise(rt, way, body, closing);
}

/// Forms a world of two with an acceptor of the service (`accept`), whichever takes it,
/// and runs `body(world&)` in it. This process is rank 1, the acceptor is rank 0.
/// Everything else is as with `keep`, the exceptions of `body` included. When the world
/// breaks it backs off, connects again, perhaps to another acceptor, and runs `body`
/// again (`reform()` would find no acceptor).
///
/// It waits until an acceptor takes it. An acceptor that takes it and dies costs 2 to 7
/// s. So does one of another secret or version, which refuses it. Another acceptor may
/// not refuse, so it goes on waiting and warns in the log.
///
/// Lifetime: the runtime and the store must outlive it.
template <class Body>
[[nodiscard]] task_keeping<Body> connect(runtime& rt, store& st, connect_options options,
                                         Body&& body,
                                         after_close closing = after_close::end) {
  check_body<std::decay_t<Body>>();
  return task_keeping<Body>(run_connect<std::decay_t<Body>>(
      rt, st, options, std::forward<Body>(body), closing));
}

}  // namespace manyworlds::inline v0
