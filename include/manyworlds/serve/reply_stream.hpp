// Reply stream: the replies of a worker to one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "manyworlds/coro/awaitable.hpp"
#include "manyworlds/detail/call_deadline.hpp"
#include "manyworlds/detail/call_refusal.hpp"
#include "manyworlds/detail/native_only.hpp"

namespace manyworlds::inline v0 {

namespace detail {

class call_state;

/// Waits for one reply. See `reply_stream::next`.
class next_reply_awaiter : public native_only {
 public:
  next_reply_awaiter(call_state* call, duration limit, std::stop_token token) noexcept;
  next_reply_awaiter(const next_reply_awaiter&) = delete;
  next_reply_awaiter& operator=(const next_reply_awaiter&) = delete;
  ~next_reply_awaiter();

  bool await_ready() noexcept;
  void await_start(continuation& k);
  bool await_cancel() noexcept;
  bool await_must_resume() const noexcept { return true; }
  std::optional<std::vector<std::byte>> await_resume();
  [[nodiscard]] failure take_failure() noexcept { return std::move(failure_); }

 private:
  friend class call_state;

  void give_up(cause why) noexcept;
  /// Ends the wait with a reply, with nothing at the end, or with a failure.
  void finish(std::optional<std::vector<std::byte>> reply, failure f) noexcept;

  call_state* call_;
  duration limit_;
  std::stop_token token_;
  member_deadline<&next_reply_awaiter::give_up> deadline_{*this};
  std::optional<std::vector<std::byte>> reply_;
  failure failure_;
  continuation* waiter_ = nullptr;
};

/// The next reply of a stream, not yet awaited.
class MANYWORLDS_MUST_AWAIT next_reply : public not_for_asio {
 public:
  using value_type = std::optional<std::vector<std::byte>>;

  explicit next_reply(call_state* call) noexcept : call_(call) {}

  /// Gives up waiting after `limit`, with cause `timed_out`; the call goes on.
  MANYWORLDS_MUST_AWAIT next_reply&& within(duration limit) && noexcept {
    limit_ = limit;
    return std::move(*this);
  }
  template <detail::no_span T>
  void within(T) && {
    detail::refuse_number<T>();
  }
  /// Gives up waiting when the token is triggered, with cause `cancelled`; the call goes
  /// on.
  MANYWORLDS_MUST_AWAIT next_reply&& stop(std::stop_token token) && noexcept {
    token_ = std::move(token);
    return std::move(*this);
  }
  next_reply_awaiter operator co_await() && noexcept {
    return next_reply_awaiter(call_, limit_, std::move(token_));
  }

 private:
  call_state* call_;
  duration limit_ = duration::max();
  std::stop_token token_;
};

}  // namespace detail

/// The replies of one call, in order. Movable. Destroying it before its end cancels the
/// call at the worker.
///
///     mw::reply_stream replies = co_await workers.call(request).within(30s);
///     while (auto reply = co_await replies.next().within(5s)) {
///       use(*reply);
///     }
///
/// Thread: the dispatcher's reactor, one `next` at a time. Precondition of a move or
/// destruction: no `next` waits, and the runtime has not ended.
class reply_stream {
 public:
  /// Makes no stream: the state of one that was moved from.
  reply_stream() noexcept;
  explicit reply_stream(std::unique_ptr<detail::call_state> call) noexcept;
  reply_stream(reply_stream&& other) noexcept;
  reply_stream& operator=(reply_stream&& other) noexcept;
  ~reply_stream();

  /// Returns the next reply, or nothing when the worker's handler has returned. Replies
  /// that had come are given before a failure is.
  ///
  /// Errors: world_error, at each call.
  /// - The causes of a break, or `closed`, if the worker was lost; the text says how many
  ///   replies came.
  /// - `handler_failed`, or `overloaded`, `invalid_argument` or `unsupported` that the
  ///   handler threw.
  /// - `timed_out` and `cancelled` of the call's own `within` and `stop`.
  /// - `timed_out` and `cancelled` of this wait, after which `next` may be called
  ///   again.
  /// - `no_member_left` if the dispatcher was destroyed.
  /// - `invalid_argument` if there is no call, or another task waits for the next reply.
  detail::next_reply next() noexcept { return detail::next_reply(call_.get()); }

  /// Returns the next reply if one has come already: it takes the rest of a burst
  /// without a suspension. Nothing says neither that the stream has ended nor that it
  /// goes on: ask `next`. Precondition: no other task waits for the next reply.
  [[nodiscard]] std::optional<std::vector<std::byte>> try_next() noexcept;

  /// Returns how many replies `next` and `try_next` have given.
  [[nodiscard]] std::uint64_t received() const noexcept;

 private:
  std::unique_ptr<detail::call_state> call_;
};

}  // namespace manyworlds::inline v0
