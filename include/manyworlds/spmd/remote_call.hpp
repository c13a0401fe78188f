// Remote call: a call of a session that is described and not yet awaited.
#pragma once

#include <concepts>
#include <cstddef>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

#include "manyworlds/detail/call_refusal.hpp"
#include "manyworlds/detail/remote_request.hpp"
#include "manyworlds/spmd/dref.hpp"

namespace manyworlds::inline v0 {

class any_value;

namespace detail {

/// What an await on a call gives: a reference to what it made on each worker ...
template <class Result>
struct gives_reference {
  using value_type = dref<Result>;
};
/// ... nothing, for a function that gives nothing, and where a register is filled ...
struct gives_nothing {
  using value_type = void;
};
/// ... the value of one worker ...
template <class Result>
struct gives_one {
  using value_type = Result;
};
/// ... or those of all, by rank.
template <class Result>
struct gives_all {
  using value_type = std::vector<Result>;
};

template <class Gives>
class typed_remote_awaiter;

template <class Result>
class typed_remote_awaiter<gives_reference<Result>> : public remote_awaiter {
 public:
  using remote_awaiter::remote_awaiter;
  dref<Result> await_resume() {
    check();
    return access::make<dref<Result>>(take_register());
  }
};

template <>
class typed_remote_awaiter<gives_nothing> : public remote_awaiter {
 public:
  using remote_awaiter::remote_awaiter;
  void await_resume() const { check(); }
};

template <class Result>
class typed_remote_awaiter<gives_one<Result>> : public remote_awaiter {
 public:
  using remote_awaiter::remote_awaiter;
  Result await_resume() const {
    check();
    value_reader in = answer_of(rank_of_answer());
    return argument<Result>::read(in);
  }
};

template <class Result>
class typed_remote_awaiter<gives_all<Result>> : public remote_awaiter {
 public:
  using remote_awaiter::remote_awaiter;
  std::vector<Result> await_resume() const {
    check();
    std::vector<Result> all;
    all.reserve(answers());
    for (std::size_t rank = 0; rank < answers(); ++rank) {
      value_reader in = answer_of(rank);
      all.push_back(argument<Result>::read(in));
    }
    return all;
  }
};

template <class Result>
using gives_by_default =
    std::conditional_t<std::is_void_v<Result>, gives_nothing, gives_reference<Result>>;

}  // namespace detail

/// A call that is described. Awaiting it makes it.
///
///     mw::dref<layer> weights = co_await tp.call(fetch, path, 0).replayable();
///     std::vector<int> tokens = co_await tp.call(pick, output).from(0).within(2s);
///     std::vector<float> losses = co_await tp.call(loss, output).all();
///     co_await tp.call(fetch, path, 0).on(2).into(weights);
///
/// Lifetime: what its arguments refer to lives until the await has ended.
template <class Result, class Gives = detail::gives_by_default<Result>>
class MANYWORLDS_MUST_AWAIT remote_call : public detail::not_for_asio {
 public:
  using value_type = typename Gives::value_type;

  explicit remote_call(detail::remote_request&& request) noexcept
      : request_(std::move(request)) {}

  /// Asks for the value that the worker of that id gives, and ends with its answer. If
  /// another worker fails later, that is told at the next `sync`.
  [[nodiscard]] auto from(int worker, source_position where = source_position()) && {
    static_assert(remote_value<Result>,
                  "what the function gives is no value: it can only "
                  "stay in a register");
    request_.wish = detail::answer_wish::one_value;
    request_.from = worker;
    request_.where = where;
    return remote_call<Result, detail::gives_one<Result>>(std::move(request_));
  }
  /// Asks for the values of all workers, by rank.
  [[nodiscard]] auto all(source_position where = source_position()) && {
    static_assert(remote_value<Result>,
                  "what the function gives is no value: it can only "
                  "stay in a register");
    request_.wish = detail::answer_wish::all_values;
    request_.where = where;
    return remote_call<Result, detail::gives_all<Result>>(std::move(request_));
  }
  /// Makes the call on these workers only, in this order of ranks.
  template <std::convertible_to<int>... Workers>
  requires(sizeof...(Workers) > 0) MANYWORLDS_MUST_AWAIT remote_call &&
      on(Workers... workers) && {
    request_.workers = {static_cast<int>(workers)...};
    return std::move(*this);
  }
  /// Fills a register that is there on these workers, in place of one of its own. The
  /// call then gives nothing.
  template <class T>
  [[nodiscard]] auto into(const dref<T>& filled) && {
    static_assert(std::same_as<T, Result> || std::same_as<T, any_value> ||
                      std::same_as<Result, any_value>,
                  "a register is filled with what its dref refers to");
    request_.into = detail::register_in(*request_.core, detail::access::core(filled));
    return remote_call<Result, detail::gives_nothing>(std::move(request_));
  }
  /// Ends the call on all workers when it is not over after that time (`timed_out`).
  /// Without it a call lasts as long as its workers live; the log names it after 5 s.
  MANYWORLDS_MUST_AWAIT remote_call&& within(
      duration limit, source_position where = source_position()) && noexcept {
    request_.limit = limit;
    request_.where = where;
    return std::move(*this);
  }
  template <detail::no_span T>
  void within(T) && {
    detail::refuse_number<T>();
  }
  /// Ends the call on all workers when the token is triggered (`cancelled`).
  MANYWORLDS_MUST_AWAIT remote_call&& stop(std::stop_token token) && noexcept {
    request_.token = std::move(token);
    return std::move(*this);
  }
  /// Makes the call again on a worker that was replaced, as long as its dref lives. Its
  /// arguments are kept for that. Errors, at the await: call_error (`invalid_argument`)
  /// unless the function was declared `mw::alone`.
  MANYWORLDS_MUST_AWAIT remote_call&& replayable() && noexcept {
    request_.is_replayable = true;
    return std::move(*this);
  }

  /// Is told where it is awaited, or spawned; the first place that it hears stands.
  void note_place(source_position where) noexcept {
    if (request_.where.line() == 0) request_.where = where;
  }
  /// Makes the call. Errors: those of `mesh`.
  detail::typed_remote_awaiter<Gives> operator co_await() && noexcept {
    return detail::typed_remote_awaiter<Gives>(std::move(request_));
  }

 private:
  detail::remote_request request_;
};

}  // namespace manyworlds::inline v0
