// Call server: a worker's side of a dispatcher.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/link/wire.hpp"
#include "manyworlds/memory/buffer_refusal.hpp"
#include "manyworlds/memory/gather_list.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::inline v0 {

class call_session;

/// One call, as the worker's handler sees it; it lives as long as the handler's task.
class served_call {
 public:
  served_call(const served_call&) = delete;
  served_call& operator=(const served_call&) = delete;

  [[nodiscard]] std::span<const std::byte> data() const noexcept { return data_; }
  /// Of the call, also where it is executed again: a worker may drop what it has done.
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  /// How many workers were given it before.
  [[nodiscard]] std::uint32_t earlier_tries() const noexcept { return earlier_tries_; }
  /// When the leader will not wait any longer, by this reactor's time.
  [[nodiscard]] std::optional<time_point> deadline() const noexcept {
    if (deadline_ == time_point::max()) return std::nullopt;
    return deadline_;
  }
  /// Triggered when the call was cancelled, its deadline has passed or its world is over;
  /// the handler's task is cancelled then as well. For what the handler has started on
  /// other threads. Triggered also when the handler has returned.
  [[nodiscard]] std::stop_token stop_token() const noexcept { return stop_.get_token(); }

  /// Sends a reply; any number of them, one after the other. Waits while the leader's
  /// reader is behind. `data` must live until the await ends. Whether the leader gets one
  /// that is given up is open. Throws world_error:
  /// `invalid_argument` for one that is larger than the leader takes; the first cause if
  /// the world is over; `cancelled` once the world is not served any more. Under a shield
  /// it ends in these cases too, and a call that was cancelled waits for no reader.
  [[nodiscard]] task<void> reply(gather_list data);
  // What cannot be sent, and what to do about it.
  template <detail::not_sendable B>
  void reply(B&&) {
    detail::refuse_buffer<B, false>();
  }

 private:
  friend class call_session;
  served_call(call_session& session, std::uint32_t slot) noexcept
      : session_(session), slot_(slot) {}

  call_session& session_;
  std::uint32_t slot_;
  std::uint32_t earlier_tries_ = 0;
  std::uint64_t id_ = 0;
  time_point deadline_ = time_point::max();
  bytes data_;
  bool is_late_ = false;
  std::stop_source stop_;
};

struct call_server_options {
  /// Handlers that run at once for one leader; it queues what is beyond.
  std::size_t concurrent = 64;
  /// The leader refuses larger ones; each may be allocated once per handler.
  std::size_t largest_request = std::size_t{16} * 1024 * 1024;
};

/// Answers the calls of a dispatcher, or of several, each in a world of its own.
///
///     call_server server([&](served_call& c) -> task<void> {
///       for (auto& token : co_await eng.generate(c.data())) co_await c.reply(token);
///     });
///     co_await keep(rt, st, {.name = "left", .rank = 1, .size = 2},
///                   [&](world& w) { return server.serve(w); });
///
/// A handler runs per call, side by side with the others. The stream of replies ends when
/// it returns. What it throws travels to the leader with its text: a world_error of cause
/// `overloaded`, `invalid_argument` or `unsupported` as that, everything else as
/// `handler_failed`.
///
/// A worker leaves in order by `drain`, or by `runtime::stop` with a time to drain:
///
///     co_await mw::until_signal({SIGTERM, SIGINT});
///     rt.stop(30s);  // takes no new calls; ends as soon as those begun have ended
///
/// All of it on the worlds' reactor. It outlives the tasks that serve and drain.
class call_server {
 public:
  using handler = std::function<task<void>(served_call&)>;

  /// Throws std::invalid_argument if there is no handler.
  explicit call_server(handler handle, call_server_options options = {});
  call_server(const call_server&) = delete;
  call_server& operator=(const call_server&) = delete;
  ~call_server();

  /// The body of a formed world of two, whose other member is the leader; lane 0 is
  /// used. Returns when it was drained, at once if it was before. Throws when the world
  /// is over: with cause `closed` when the leader has left in order, as after
  /// `dispatcher::drain`. No handler is left then. A leader that sends what it must not
  /// breaks the world (`protocol_error`).
  [[nodiscard]] task<void> serve(world& w);

  /// Takes no new calls from now on, of any leader, and ends when no `serve` is left. The
  /// leaders are told: calls that were begun go on to their end, those that are still on
  /// their way here are given back and asked of other workers, which does not count as
  /// one of their tries. Then `serve` returns, and with it `keep` and `connect`, which
  /// leave their worlds and form none again.
  ///
  /// There is no way back, also if this is cancelled. It waits for handlers as long as
  /// they run, and for a leader until it answers or its world breaks. A runtime that is
  /// stopped does this by itself; its `drain` bounds it.
  [[nodiscard]] task<void> drain();

  /// A word for the leaders' `pick`; what it means is between you and that. Only the
  /// newest is sent.
  void publish_load(std::uint64_t word) noexcept;

  struct state;

 private:
  std::unique_ptr<state> state_;
};

}  // namespace manyworlds::inline v0
