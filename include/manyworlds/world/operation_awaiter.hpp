// Operation awaiter: one operation on a world, from any coroutine, with its deadline and
// stop token.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "manyworlds/backend/operation.hpp"
#include "manyworlds/coro/awaitable.hpp"
#include "manyworlds/coro/foreign_continuation.hpp"
#include "manyworlds/memory/gather_list.hpp"
#include "manyworlds/source_position.hpp"
#include "manyworlds/world/world_core.hpp"

namespace manyworlds::inline v0 {

/// The description of an operation, as `world`'s members give it: movable, started by
/// nothing but being awaited.
struct operation_request {
  operation_request(world_core& core, operation_kind kind, rank_t peer, lane on,
                    source_position where) noexcept
      : core(&core), kind(kind), peer(peer), on(on), where(where) {}

  world_core* core;
  operation_kind kind;
  rank_t peer;
  lane on;
  user_word user;
  bool takes_fresh_lanes = false;
  bool delivered = false;
  const void* head = nullptr;
  std::size_t head_bytes = 0;
  gather_list source;
  scatter_list target;
  std::optional<duration> limit;
  std::stop_token stop;
  source_position where;
};

/// The operation itself, built in place where it is awaited. It starts on the world's
/// reactor, by one post if the awaiting task lives elsewhere, and resumes the task at its
/// home.
class operation_awaiter : public operation {
 public:
  explicit operation_awaiter(operation_request&& request) noexcept;
  ~operation_awaiter();

  bool await_ready() const noexcept { return false; }
  bool await_start(continuation& k) noexcept;
  bool await_cancel() noexcept;
  bool await_must_resume() const noexcept { return outcome_ != outcome::cancelled; }
  /// Throws world_error unless the operation took effect.
  void await_resume();
  /// Where it runs, and where foreign coroutines resume unless they say otherwise.
  [[nodiscard]] executor& await_home() const noexcept;

  /// The failure instead of a throw; says nothing if it took effect.
  [[nodiscard]] failure take_failure();

  /// Whether the core lists it.
  bool is_pending = false;

 private:
  enum class outcome : unsigned char { pending, done, failed, cancelled };
  enum class reason : unsigned char { none, task_cancelled, stopped, late };

  struct step final : work {
    using function = void (operation_awaiter::*)() noexcept;
    step(operation_awaiter& op, function f) noexcept
        : work([](work& w) noexcept {
            auto& self = static_cast<step&>(w);
            (self.op_.*self.function_)();
          }),
          op_(op),
          function_(f) {}
    operation_awaiter& op_;
    function function_;
  };
  struct limit_timer final : timer {
    explicit limit_timer(operation_awaiter& op) noexcept
        : timer([](timer& t) noexcept {
            static_cast<limit_timer&>(t).op.give_up(reason::late);
          }),
          op(op) {}
    operation_awaiter& op;
  };
  struct on_stop {
    operation_awaiter* op;
    void operator()() const noexcept;
  };

  static void has_ended(operation& op, operation_end how) noexcept;
  void begin() noexcept;
  bool give_up(reason why) noexcept;
  void finish(outcome how) noexcept;
  void resume_if_quiet() noexcept;
  /// Whether steps may be queued at all, by other threads or a stop token.
  [[nodiscard]] bool may_have_steps() const noexcept { return is_remote_ || had_token_; }
  /// Queues a step at the world's reactor unless the waiter is on its way.
  bool queue(step& s) noexcept;
  void step_is_done() noexcept;
  void begin_here() noexcept;
  void cancel_here() noexcept;
  void stop_here() noexcept;
  void settle_failure() noexcept;
  [[nodiscard]] std::string objection() const;

  world_core* core_;
  /// Only while started from another executor: the handle may be dropped before the start
  /// arrives.
  std::shared_ptr<world_core> keeps_;
  gather_list gathered_;
  scatter_list scattered_;
  std::optional<duration> limit_;
  std::stop_token token_;
  std::optional<std::stop_callback<on_stop>> stop_;
  continuation* waiter_ = nullptr;
  std::unique_ptr<failure> failure_;
  limit_timer timer_{*this};
  step start_step_{*this, &operation_awaiter::begin_here};
  step cancel_step_{*this, &operation_awaiter::cancel_here};
  step stop_step_{*this, &operation_awaiter::stop_here};
  /// Steps queued at the world's reactor that refer to this object, or `shut`: the waiter
  /// is on its way, and no step may be queued any more.
  std::atomic<int> gate_{0};
  static constexpr int shut = -1;
  outcome outcome_ = outcome::pending;
  reason given_up_ = reason::none;
  bool is_starting_ = false;
  bool is_remote_ = false;
  bool had_token_ = false;
};

/// The operation's value, by kind.
template <class Result>
class operation_awaiter_for;

template <>
class operation_awaiter_for<void> : public operation_awaiter {
 public:
  using operation_awaiter::operation_awaiter;
};

template <>
class operation_awaiter_for<message_info> : public operation_awaiter {
 public:
  using operation_awaiter::operation_awaiter;
  message_info await_resume() {
    operation_awaiter::await_resume();
    return info;
  }
};

/// A message's head, and what is known of what follows it.
template <class Head>
struct message {
  Head head;
  message_info info;
};

template <class Head>
class operation_awaiter_for<message<Head>> : public operation_awaiter {
 public:
  explicit operation_awaiter_for(operation_request&& request) noexcept
      : operation_awaiter(std::move(request)) {
    head = &head_;
    head_bytes = sizeof(Head);
  }
  message<Head> await_resume() {
    operation_awaiter::await_resume();
    return {head_, info};
  }

 private:
  Head head_;
};

/// What `world::send`, `recv` and their kin give: a description that may still be
/// modified, to be awaited once, by a task or by any other coroutine.
template <class Result>
class [[nodiscard]] world_operation {
 public:
  using value_type = Result;

  explicit world_operation(operation_request&& request) noexcept
      : request_(std::move(request)) {}

  /// Gives up after `limit` with a world_error of cause `timed_out` (not with the
  /// exception `timed_out`, as the free `within` does); the world stays up, except that
  /// an entered collective breaks it (`overdue`).
  world_operation&& within(duration limit) && noexcept {
    request_.limit = limit;
    return std::move(*this);
  }
  /// Gives up with cause `cancelled` when the token is triggered; a collective is waited
  /// for.
  world_operation&& stop(std::stop_token token) && noexcept {
    request_.stop = std::move(token);
    return std::move(*this);
  }
  /// Of a send: ends when the peer's receive has taken the message, not when it was
  /// accepted.
  world_operation&& delivered() && noexcept {
    request_.delivered = true;
    return std::move(*this);
  }
  /// For coroutines of other libraries: resume there.
  world_operation&& resume_on(executor& where) && noexcept {
    resumption_ = &where;
    return std::move(*this);
  }

  awaitable_by_all<operation_awaiter_for<Result>> operator co_await() && noexcept {
    return awaitable_by_all<operation_awaiter_for<Result>>(resumption_,
                                                           std::move(request_));
  }

 private:
  operation_request request_;
  executor* resumption_ = nullptr;
};

}  // namespace manyworlds::inline v0
