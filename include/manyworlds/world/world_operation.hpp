// World operation: the result of the functions of `world`, to be modified and awaited.
#pragma once

#include <concepts>
#include <exception>
#include <memory>
#include <stop_token>
#include <type_traits>
#include <utility>

#include "manyworlds/coro/awaitable.hpp"
#include "manyworlds/detail/call_refusal.hpp"
#include "manyworlds/detail/foreign_continuation.hpp"
#include "manyworlds/detail/native_only.hpp"
#include "manyworlds/detail/operation_awaiter.hpp"
#include "manyworlds/world/message_info.hpp"

namespace manyworlds::inline v0 {

/// The head of a message, and a description of what follows it.
template <class Head>
struct message {
  Head head;
  message_info info;
};

namespace detail {

/// An operation with its buffers (`gather_list`, `scatter_list` or none), and its
/// value.
template <class Result, class List>
class operation_awaiter_for : public operation_awaiter {
 public:
  operation_awaiter_for(operation_request&& request, List&& list) noexcept
      : operation_awaiter(std::move(request)), list_(std::move(list)) {
    if constexpr (std::is_base_of_v<gather_list, List>) source = list_.views();
    if constexpr (std::is_same_v<List, scatter_list>) target = list_.views();
    if constexpr (requires { list_.head; }) this->head = std::addressof(list_.head);
    if constexpr (requires { list_.targets; }) this->targets = &list_.targets;
  }
  Result await_resume() {
    operation_awaiter::await_resume();
    if constexpr (!std::is_void_v<Result>) return info;
  }

 private:
  [[no_unique_address]] List list_;
};

template <class Result, std::derived_from<device_request> Request>
class operation_awaiter_for<Result, Request> : public operation_awaiter {
 public:
  operation_awaiter_for(operation_request&& request, Request&& asked) noexcept
      : operation_awaiter(std::move(request)), asked_(std::move(asked)) {
    asked_.part.source = asked_.source.views();
    asked_.part.target = asked_.target.views();
    device = &asked_.part;
    if constexpr (requires { asked_.head; }) this->head = std::addressof(asked_.head);
  }
  Result await_resume() {
    operation_awaiter::await_resume();
    if (asked_.part.thrown) std::rethrow_exception(asked_.part.thrown);
    if constexpr (std::is_same_v<Result, message_info>) return info;
    if constexpr (std::is_same_v<Result, ticket>) return asked_.part.at;
    if constexpr (std::is_same_v<Result, device_costs>) return asked_.part.costs;
  }

 private:
  Request asked_;
};

template <>
class operation_awaiter_for<void, collective_request> : public operation_awaiter {
 public:
  operation_awaiter_for(operation_request&& request,
                        const collective_request& asked) noexcept
      : operation_awaiter(std::move(request)), asked_(asked) {
    source = const_view_list::of_one(asked_.source);
    target = view_list::of_one(asked_.target);
    collective = &asked_.part;
  }

 private:
  collective_request asked_;
};

template <class Head>
class operation_awaiter_for<message<Head>, no_list> : public operation_awaiter {
 public:
  operation_awaiter_for(operation_request&& request, no_list) noexcept
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

}  // namespace detail

/// The result of `world::send`, `recv` and the other operations: a description that may
/// still be modified, and is awaited once, by a task or by any other coroutine. All is
/// inline down to the start of the operation: moving lists through memory would cost a
/// small message 30 ns.
///
///     co_await w.send(x, mw::to{1}, mw::lane{7}).delivered().within(1s);
///     co_await w.recv(y, mw::any).stop(token);
///     auto all = w.barrier();  // nothing has begun yet
///     co_await std::move(all).within(1s);
template <class Result, class List = detail::no_list>
class MANYWORLDS_MUST_AWAIT world_operation : public detail::not_for_asio {
  static constexpr bool is_on_device = std::derived_from<List, detail::device_request>;

 public:
  using value_type = Result;

  explicit world_operation(detail::operation_request&& request,
                           List&& list = List()) noexcept
      : request_(std::move(request)), list_(std::move(list)) {}

  /// Gives up after `limit`. The world stays up, except that an entered collective breaks
  /// it. A send over TCP that was sent in full waits a second more for the peer's word on
  /// it. A stopped peer gives none, and may later take the message.
  ///
  /// Errors: world_error (`timed_out`, of a collective `overdue`), not the exception
  /// `timed_out` as of the free `within`.
  MANYWORLDS_MUST_AWAIT world_operation&& within(duration limit) && noexcept {
    request_.limit = limit;
    return std::move(*this);
  }
  template <detail::no_span T>
  void within(T) && {
    detail::refuse_number<T>();
  }
  /// Gives up when the token is triggered; a collective that was entered is waited for.
  /// Errors: world_error (`cancelled`).
  MANYWORLDS_MUST_AWAIT world_operation&& stop(std::stop_token token) && noexcept {
    request_.stop = std::move(token);
    return std::move(*this);
  }
  /// Makes a send end when the peer's receive has taken the message, not when it was
  /// accepted.
  MANYWORLDS_MUST_AWAIT world_operation&& delivered() && noexcept {
    request_.delivered = true;
    return std::move(*this);
  }
  /// Makes a receive that names its lane discard the lane, like `world::discard`, if it
  /// is given up by its deadline, its token or its task.
  MANYWORLDS_MUST_AWAIT world_operation&& discarding() && noexcept {
    request_.discards = true;
    return std::move(*this);
  }
  /// Launches an operation on device memory in the order of its start, without matching
  /// it with those of the peers.
  MANYWORLDS_MUST_AWAIT world_operation&& unmatched() && noexcept requires is_on_device {
    list_.part.unmatched = true;
    return std::move(*this);
  }
  /// Makes an operation on device memory end when the stream has it. Errors: those of the
  /// operation.
  world_operation<ticket, List> enqueue() && noexcept requires is_on_device {
    list_.part.enqueued = true;
    return world_operation<ticket, List>(std::move(request_), std::move(list_));
  }
  /// Resumes a coroutine of another library there.
  MANYWORLDS_MUST_AWAIT world_operation&& resume_on(executor& where) && noexcept {
    resumption_ = &where;
    return std::move(*this);
  }

  /// Starts the operation when it is awaited. Errors: those of the function that gave it.
  detail::awaitable_by_all<detail::operation_awaiter_for<Result, List>>
  operator co_await() && noexcept {
    return detail::awaitable_by_all<detail::operation_awaiter_for<Result, List>>(
        resumption_, std::move(request_), std::move(list_));
  }

  /// For `world::group`, not for users.
  [[nodiscard]] bool is_unmatched() const noexcept {
    if constexpr (is_on_device) {
      return list_.part.unmatched &&
             (is_message(request_.kind) || (request_.kind > operation_kind::barrier &&
                                            request_.kind <= operation_kind::all_to_all));
    }
    return false;
  }
  /// For `world::group`, not for users.
  void join(detail::launch_group& together) noexcept {
    if constexpr (is_on_device) {
      if (is_unmatched()) list_.part.group = &together;
    }
  }
  /// For the calls on device memory, not for users.
  [[nodiscard]] detail::device_part& part() noexcept requires is_on_device {
    return list_.part;
  }

 private:
  detail::operation_request request_;
  [[no_unique_address]] List list_;
  executor* resumption_ = nullptr;
};

}  // namespace manyworlds::inline v0
