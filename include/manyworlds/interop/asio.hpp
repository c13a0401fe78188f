// Standalone Asio: runs our tasks as asynchronous operations with completion tokens,
// since `asio::awaitable` takes no foreign awaitable.
#pragma once

#include <asio/any_io_executor.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/post.hpp>
#include <asio/system_executor.hpp>
#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "manyworlds/coro/giving_up.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/branch.hpp"
#include "manyworlds/detail/root.hpp"

namespace manyworlds::inline v0 {

namespace detail {

/// The completion signature: `void(std::exception_ptr, T)`, or
/// `void(std::exception_ptr)` for nothing. The error is null on success; the value is
/// default-constructed beside an error.
template <class T>
struct asio_signature {
  using type = void(std::exception_ptr, T);
};

template <>
struct asio_signature<void> {
  using type = void(std::exception_ptr);
};

/// One task that runs for an Asio handler. It keeps itself alive until the handler was
/// posted; cancellations on their way to the task's home keep it alive too.
template <class T, class Handler>
class asio_operation final
    : public std::enable_shared_from_this<asio_operation<T, Handler>> {
 public:
  asio_operation(executor& home, task<T>&& t, Handler&& handler)
      : home_(home),
        task_(std::move(t)),
        handler_(std::move(handler)),
        keeps_busy_(asio::get_associated_executor(handler_)),
        root_(home, ended, this),
        deliver_([](work& w) noexcept { static_cast<notice&>(w).self.deliver(); }, *this),
        cancel_([](work& w) noexcept { static_cast<notice&>(w).self.cancel(); }, *this) {}

  void start() {
    MW_ASSERT(!self_ && !has_ended_, "an operation is started once");
    self_ = this->shared_from_this();
    auto slot = asio::get_associated_cancellation_slot(handler_);
    if (slot.is_connected()) {
      slot.assign([operation = this->weak_from_this()](asio::cancellation_type) {
        if (auto alive = operation.lock()) alive->request_cancel(alive);
      });
    }
    root_.start(task_.promise());
  }

 private:
  struct notice final : work {
    notice(work::function f, asio_operation& s) noexcept : work(f), self(s) {}
    asio_operation& self;
  };

  /// Requests a cancellation. Thread: any; Asio's, where it emits the cancellation.
  void request_cancel(std::shared_ptr<asio_operation> alive) noexcept {
    if (cancel_is_posted_.exchange(true)) return;
    cancelling_ = std::move(alive);
    home_.execute(cancel_);
  }

  // Thread: the home's, from here to `deliver`.
  void cancel() noexcept {
    const auto alive = std::move(cancelling_);
    MW_ASSERT(alive, "a cancellation on its way home keeps the operation alive");
    if (!has_ended_ && root_.cancel()) finish();
  }
  static void ended(void* self) noexcept { static_cast<asio_operation*>(self)->finish(); }
  /// Posts the delivery: the task's frame must not be destroyed within its own last
  /// suspension.
  void finish() noexcept {
    MW_ASSERT(!has_ended_, "law 1: an operation ends once");
    has_ended_ = true;
    home_.schedule(deliver_);
  }

  void deliver() noexcept {
    MW_ASSERT(has_ended_ && self_, "an ended operation is delivered once");
    std::exception_ptr error;
    std::optional<storable<T>> value;
    if (task_.promise().outcome() == task_outcome::cancelled) {
      error = std::make_exception_ptr(stopped());
    } else {
      try {
        if constexpr (std::is_void_v<T>) {
          task_.promise().take_result();
        } else {
          value.emplace(task_.promise().take_result());
        }
      } catch (...) {
        error = std::current_exception();
      }
    }
    task_.reset();
    // Cancellation slots belong to the handler's executor: cleared there, not here.
    asio::post(asio::get_associated_executor(handler_),
               [self = std::move(self_), error = std::move(error),
                value = std::move(value)]() mutable {
                 self->complete(std::move(error), std::move(value));
               });
  }

  /// Calls the handler. Thread: the handler's executor.
  void complete(std::exception_ptr error, std::optional<storable<T>> value) {
    asio::get_associated_cancellation_slot(handler_).clear();
    Handler handler = std::move(handler_);
    if constexpr (std::is_void_v<T>) {
      std::move(handler)(std::move(error));
    } else {
      std::move(handler)(std::move(error), value ? std::move(*value) : T{});
    }
  }

  executor& home_;
  task<T> task_;
  Handler handler_;
  // Keeps the handler's loop from running out of work while it waits for us.
  asio::executor_work_guard<asio::associated_executor_t<Handler>> keeps_busy_;
  task_root root_;
  notice deliver_;
  notice cancel_;
  std::shared_ptr<asio_operation> self_;
  std::shared_ptr<asio_operation> cancelling_;
  std::atomic<bool> cancel_is_posted_{false};
  bool has_ended_ = false;
};

}  // namespace detail

/// Runs a task or operation of ours on its home (a reactor, on any thread) and
/// completes on the handler's Asio executor. Use it inside an `asio::awaitable`, or
/// with any other completion token:
///
///     co_await mw::asio_await(rt.home(), w.barrier(), asio::use_awaitable);
///
/// Asio's cancellation (any type) cancels the task, unless its value wins the race.
/// Values must be default-constructible for Asio.
///
/// Errors: the completion carries what the task threw, or `stopped` if it was cancelled.
///
/// Lifetime: the handler's io_context must outlive the home's last turn. The home
/// may still be inside `asio::post` when `run` has returned already.
template <class Awaitable, class CompletionToken>
auto asio_await(executor& home, Awaitable&& awaitable, CompletionToken&& token) {
  using result = typename detail::task_for<Awaitable>::value_type;
  static_assert(!std::is_reference_v<result>, "give Asio a value");
  return asio::async_initiate<CompletionToken,
                              typename detail::asio_signature<result>::type>(
      [](auto handler, executor* at, task<result> t) {
        using started_operation = detail::asio_operation<result, decltype(handler)>;
        std::make_shared<started_operation>(*at, std::move(t), std::move(handler))
            ->start();
      },
      token, &home, detail::as_task(std::forward<Awaitable>(awaitable)));
}

}  // namespace manyworlds::inline v0
