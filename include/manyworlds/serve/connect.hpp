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

/// What to connect to. Trivially destructible, so that it can be written in an awaited
/// expression.
struct connect_options {
  /// As the acceptors name it.
  service_name service = {};
  /// Of the world. Name, rank and size are not given: `connect` does.
  world_options world = {};
};

/// Where the world of a connector leaves its record. What keeps the connector's own store
/// from answering keeps that world from being formed, and is told as its store's trouble.
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

/// One connector of a service: enters the waiting list when it forms a world, and again
/// when that comes to nothing.
class connector {
 public:
  static constexpr std::string_view name = "connect";

  /// Throws world_error (`invalid_argument`).
  connector(runtime& rt, store& st, const connect_options& options);
  connector(const connector&) = delete;
  connector& operator=(const connector&) = delete;
  ~connector();

  /// Its predecessor is gone by then.
  [[nodiscard]] world describe();
  [[nodiscard]] task<void> form(world& w);

 private:
  /// When to look whether the entry still stands: so soon at first, and less and less
  /// often.
  static constexpr duration first_look = std::chrono::milliseconds(900);
  static constexpr duration longest_look = std::chrono::seconds(5);
  /// One that dies once it has taken somebody is not worth a warning.
  static constexpr int told_when_taken = 2;

  [[nodiscard]] task<void> stay_announced();
  /// Gives when to look again.
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
  /// Anew for each world.
  std::optional<desk_store> desk_;
  duration pause_ = first_look;
  bool is_missing_ = false;
  /// Of the world that is being formed.
  bool is_waiting_told_ = false;
  /// How often the entry was gone while one world was being formed.
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
/// and runs `body(world&)` in it: here is rank 1, the acceptor is rank 0. Everything else
/// is as with `keep`, also what becomes of an exception of `body`: when the world breaks
/// it backs off, connects again, perhaps to another acceptor, and runs `body` again
/// (`reform()` would find no acceptor). Until one takes it, it waits; one that takes it
/// and dies costs 2 to 7 s. So does one of another secret or version, which refuses it:
/// another one may not, so that it goes on waiting, but warns in the log. The runtime and
/// the store must outlive it.
template <class Body>
[[nodiscard]] task_keeping<Body> connect(runtime& rt, store& st, connect_options options,
                                         Body&& body,
                                         after_close closing = after_close::end) {
  check_body<std::decay_t<Body>>();
  return task_keeping<Body>(run_connect<std::decay_t<Body>>(
      rt, st, options, std::forward<Body>(body), closing));
}

}  // namespace manyworlds::inline v0
