// Call server: a worker's side of a dispatcher.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/buffer_refusal.hpp"
#include "manyworlds/memory/gather_list.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::inline v0 {

namespace detail {
class server_session;
}  // namespace detail

/// One call, as the worker's handler sees it. Lifetime: that of the handler's task.
///
///     const auto answer = [&](mw::served_call& call) -> mw::task<void> {
///       for (const std::string& token : tokens_of(call.data())) {
///         co_await call.reply(token);
///       }
///     };
///     mw::call_server server(answer);
class served_call {
 public:
  served_call(const served_call&) = delete;
  served_call& operator=(const served_call&) = delete;

  [[nodiscard]] std::span<const std::byte> data() const noexcept { return data_; }
  /// Returns the call's id. It is the same where the call is executed again, so a
  /// worker may drop a repetition.
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  /// Returns how many workers the call was given to before.
  [[nodiscard]] std::uint32_t earlier_tries() const noexcept { return earlier_tries_; }
  /// Returns when the leader stops waiting, in this reactor's time.
  [[nodiscard]] std::optional<time_point> deadline() const noexcept {
    if (deadline_ == time_point::max()) return std::nullopt;
    return deadline_;
  }
  /// Returns a token for work that the handler has started on other threads. It is
  /// triggered when the call is cancelled, its deadline has passed or its world is
  /// over; the handler's task is cancelled then as well. It is also triggered when the
  /// handler has returned.
  [[nodiscard]] std::stop_token stop_token() const noexcept { return stop_.get_token(); }

  /// Sends a reply. A handler may send any number, one after the other. Waits while the
  /// leader's reader is behind. If the await is given up, the reply may or may not
  /// reach the leader.
  ///
  /// Lifetime: `data` must live until the await ends.
  ///
  /// Errors: world_error with the causes of any operation; `invalid_argument` for a reply
  /// larger than the leader takes; `cancelled` once the world is no longer served. Under
  /// a shield it ends in these cases too, and a call that was cancelled waits for no
  /// reader.
  task<void> reply(gather_list data);
  // Refuses, with a sentence, what cannot be sent.
  template <detail::not_sendable B>
  void reply(B&&) {
    detail::refuse_buffer<B, false>();
  }

 private:
  friend class detail::server_session;
  served_call(detail::server_session& session, std::uint32_t slot) noexcept
      : session_(session), slot_(slot) {}

  detail::server_session& session_;
  std::uint32_t slot_;
  std::uint32_t earlier_tries_ = 0;
  std::uint64_t id_ = 0;
  time_point deadline_ = time_point::max();
  std::vector<std::byte> data_;
  bool is_late_ = false;
  std::stop_source stop_;
};

namespace detail {
template <class F>
concept no_handler = !std::convertible_to<F, std::function<task<void>(served_call&)>>;
}  // namespace detail

/// Options of a call server.
struct call_server_options {
  /// Handlers that run at once for one leader. The leader queues the calls beyond it.
  std::size_t concurrent = 64;
  /// Largest request that the leader may send. Each handler may allocate this much
  /// once.
  std::size_t largest_request = std::size_t{16} * 1024 * 1024;
};

/// Answers the calls of one or several dispatchers, each in a world of its own.
///
///     call_server server([&](served_call& c) -> task<void> {
///       for (auto& token : co_await eng.generate(c.data())) co_await c.reply(token);
///     });
///     co_await keep(rt, st, {.name = "left", .rank = 1, .size = 2},
///                   [&](world& w) { return server.serve(w); });
///
/// A handler runs per call, side by side with the others. The stream of replies ends
/// when the handler returns. An exception of the handler travels to the leader with its
/// text. A world_error of cause `overloaded`, `invalid_argument` or `unsupported` keeps
/// its cause; every other exception becomes `handler_failed`.
///
/// A worker leaves in order by `drain`, or by `runtime::stop` with a time to drain:
///
///     co_await mw::until_signal({SIGTERM, SIGINT});
///     rt.stop(30s);  // takes no new calls; ends as soon as those begun have ended
///
/// Thread: the worlds' reactor. Lifetime: it must outlive the tasks that serve and
/// drain.
class call_server {
 public:
  /// Answers one call, by `served_call::reply`.
  using handler = std::function<task<void>(served_call&)>;

  /// Errors: std::invalid_argument if there is no handler.
  explicit call_server(handler handle, call_server_options options = {});
  // Refuses what is no handler, and says what one is.
  template <detail::no_handler F>
  explicit call_server(F&&, call_server_options = {}) {
    static_assert(std::is_void_v<F>,
                  "a handler takes a mw::served_call& and gives a mw::task<void>: "
                  "[&](mw::served_call& call) -> mw::task<void> {...}");
  }
  call_server(const call_server&) = delete;
  call_server& operator=(const call_server&) = delete;
  ~call_server();

  /// Serves a formed world of two; the other member is the leader. It uses lane 0.
  /// Meant as the body of `keep` or `connect`. Returns when the server was drained, at
  /// once if it was drained before. No handler is left when it ends.
  ///
  /// Errors: world_error with the causes of any operation by which the world is over.
  /// This is `closed` when the leader has left in order, as after `dispatcher::drain`. A
  /// leader that breaks the protocol breaks the world (`protocol_error`).
  /// `invalid_argument`: the world has not two members.
  task<void> serve(world& w);

  /// Takes no new calls of any leader, and ends when no `serve` is left. The leaders
  /// are told. Calls that were begun go on to their end. Calls that are still on their
  /// way here are given back; other workers get them, and this does not count as one of
  /// their tries. Then `serve` returns, and with it `keep` and `connect`, which leave
  /// their worlds and form no more.
  ///
  /// Cancelling it does not undo it. It waits for handlers as long as they run, and for
  /// a leader until it answers or its world breaks. A runtime that is stopped drains by
  /// itself; its `drain` bounds it. Errors: none.
  task<void> drain();

  /// Publishes a word for the leaders' `pick`. Its meaning is the application's. Only
  /// the newest word is sent.
  void publish_load(std::uint64_t word) noexcept;

  struct state;

 private:
  std::unique_ptr<state> state_;
};

}  // namespace manyworlds::inline v0
