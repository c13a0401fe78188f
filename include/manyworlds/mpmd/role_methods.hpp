// Role methods: the answering side of a calls edge.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/packed_values.hpp"
#include "manyworlds/detail/task_value.hpp"
#include "manyworlds/mpmd/job_placement.hpp"
#include "manyworlds/time.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::inline v0 {

class served_call;

namespace detail {
class role_methods_core;
struct call_head;
}  // namespace detail

/// One call, as the method that answers it sees it. Lifetime: that of the method's task.
class role_call {
 public:
  role_call(const role_call&) = delete;
  role_call& operator=(const role_call&) = delete;

  /// Returns what was sent: any bytes. A method with types has its arguments instead.
  [[nodiscard]] std::string_view data() const noexcept { return data_; }
  /// Returns the method's name.
  [[nodiscard]] std::string_view method() const noexcept { return method_; }
  /// Returns the instance that asks, as it names itself.
  [[nodiscard]] const instance_id& from() const noexcept { return from_; }
  /// Returns the call's id. It is the same where a call that may be repeated is executed
  /// again, perhaps by another instance.
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  /// Returns when the asking side stops waiting, in this reactor's time.
  [[nodiscard]] std::optional<time_point> deadline() const noexcept;
  /// Returns a token that is triggered when the answer is no longer wanted; the method's
  /// task is cancelled then as well.
  [[nodiscard]] std::stop_token stop_token() const noexcept;

 private:
  friend class detail::role_methods_core;
  role_call(served_call& call, const detail::call_head& head);

  served_call& call_;
  std::string_view data_;
  std::string_view method_;
  instance_id from_;
  std::uint64_t id_;
};

namespace detail {

template <class F, class... P>
concept takes_role_call = std::is_invocable_v<F&, role_call&, P...>;

template <class F, class... P>
decltype(auto) invoke_method(F& run, role_call& call, P&&... arguments) {
  if constexpr (takes_role_call<F, P...>) {
    return run(call, std::move(arguments)...);
  } else {
    return run(std::move(arguments)...);
  }
}

/// Returns whether a function of type F may stand behind a name of these types.
template <class F, class Result, class... P>
[[nodiscard]] consteval bool answers_name() {
  if constexpr (takes_role_call<F, P...> || std::is_invocable_v<F&, P...>) {
    using given = decltype(invoke_method<F, P...>(
        std::declval<F&>(), std::declval<role_call&>(), std::declval<P>()...));
    return std::is_same_v<typename task_value<given>::type, Result>;
  } else {
    return false;
  }
}

/// Answers one call of a method with types. Errors: world_error (`invalid_argument`) if
/// the arguments are others; what the method throws. Lifetime: method and call outlive
/// the task.
template <class F, class Result, class... P>
task<std::string> answer_values(F& run, role_call& call) {
  unpacked_values from = unpacked_arguments(call.data());
  std::tuple<unpacked_argument<P>...> read = read_arguments<P...>(from);
  const auto invoke = [&](unpacked_argument<P>&... each) -> decltype(auto) {
    return invoke_method<F, P...>(run, call, std::move(each.value)...);
  };
  using given = decltype(std::apply(invoke, read));
  if constexpr (task_value<given>::is_task) {
    given running = std::apply(invoke, read);
    if constexpr (std::is_void_v<Result>) {
      co_await std::move(running);
      co_return packed_nothing();
    } else {
      const Result result = co_await std::move(running);
      co_return packed_result<Result>(result);
    }
  } else if constexpr (std::is_void_v<Result>) {
    std::apply(invoke, read);
    co_return packed_nothing();
  } else {
    const Result result = std::apply(invoke, read);
    co_return packed_result<Result>(result);
  }
}

}  // namespace detail

/// The methods that a role answers at a calls edge, by name.
///
///     constexpr mw::remote_function<float(std::vector<float>, int)> sum{"sum"};
///     mw::role_methods answers;
///     answers.on(sum, [](std::vector<float> v, int k) { return v.at(0) * float(k); });
///     answers.on("double", [](mw::role_call& call) -> mw::task<std::string> {
///       co_return std::string(call.data()) + std::string(call.data());
///     });
///     s.spawn(self.serve("ask", answers));
///
/// A method runs for each call, side by side with the others, 64 at a time for one
/// asking instance. One behind a `remote_function` takes and gives its types; one behind
/// a text takes and gives any bytes. A result has up to 16 MiB. An exception of a method
/// travels to the asking side with its text, as cause `handler_failed`.
///
/// Thread: the runtime's reactor. Lifetime: it outlives the tasks that serve and drain.
class role_methods {
 public:
  /// Answers one call. It is called on the reactor.
  using method = std::function<task<std::string>(role_call&)>;

  role_methods();
  role_methods(const role_methods&) = delete;
  role_methods& operator=(const role_methods&) = delete;
  ~role_methods();

  /// Sets what answers calls of that name. Errors: std::invalid_argument for a name that
  /// is empty, longer than 64 bytes or there already, or without a method.
  role_methods& on(std::string name, method answer);
  /// Sets what answers calls of that name with these types. The function takes what the
  /// name says, perhaps with a `mw::role_call&` in front, and gives the result or a task
  /// of it. It is kept by value. A view among its parameters refers to the call. Calls
  /// with other arguments end by `invalid_argument`, and do not reach it. Errors: as
  /// above.
  template <class Result, class... P, class F>
  role_methods& on(const remote_function<Result(P...)>& name, F answer) {
    static_assert(detail::called_by_values<Result, P...>,
                  "a method of a role takes and gives values (mw::argument) that last: "
                  "no register (T& or const T&), and as a result no view");
    constexpr bool fits = detail::answers_name<F, Result, P...>();
    static_assert(fits,
                  "the function must take the parameters of its name, perhaps behind a "
                  "mw::role_call&, and give its result or a mw::task of it");
    if constexpr (fits) {
      if constexpr (requires { answer == nullptr; }) {
        if (answer == nullptr) throw std::invalid_argument("a name without a method");
      }
      const auto run = std::make_shared<F>(std::move(answer));
      on_values(std::string(name.name()), [run](role_call& call) {
        return detail::answer_values<F, Result, P...>(*run, call);
      });
    }
    return *this;
  }
  /// Serves a world of two with one asking instance; `role_context::serve` does so with
  /// all. Errors: those of `call_server::serve`.
  [[nodiscard]] task<void> serve(world& w);
  /// Takes no new calls, and ends when those that were begun have ended. Other instances
  /// get what was on its way here. Meant for `role_context::leaving`. Errors: none.
  [[nodiscard]] task<void> drain();

 private:
  /// Its method takes and gives values that are packed.
  void on_values(std::string name, method answer);

  std::unique_ptr<detail::role_methods_core> core_;
};

}  // namespace manyworlds::inline v0
