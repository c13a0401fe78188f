// Role group: the asking side of a calls edge.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/packed_values.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/mpmd/job_placement.hpp"
#include "manyworlds/time.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::inline v0 {

namespace detail {
class role_core;
class role_group_core;
}  // namespace detail

/// The instance that had a call was lost before it answered: it may have carried the call
/// out, or not. The failure says how it was lost.
class MANYWORLDS_EXPORT unknown_outcome : public world_error {
 public:
  using world_error::world_error;
};

/// How a call of a role group is made.
struct role_call_options {
  /// The longest time for the whole call, its repetitions included.
  duration within = std::chrono::seconds(30);
  /// The method may be carried out again without harm. Then a call that is lost with its
  /// instance is given to the successor, or for `any` to another instance, under its id.
  /// That happens up to `role_group::options::tries` times in all. Otherwise such a call
  /// ends by `unknown_outcome`.
  bool may_repeat = false;
};

namespace detail {

/// Which instances a question goes to.
enum class asked_ones : std::uint8_t {
  one,       ///< that of its index, or any
  all,       ///< all get the same argument
  by_index,  ///< each gets one of the arguments
  in_parts,  ///< each gets a part of the arguments, by a call for each
};

/// A method, and what it is asked with.
struct group_question {
  std::string method;
  bool has_values = false;
  asked_ones whom = asked_ones::one;
  std::optional<std::uint32_t> index;
  std::vector<std::string> arguments;
  role_call_options how;
};

/// Takes the result of the call of that number. Errors: value_error if it is another
/// value than is wanted.
using result_taker = std::function<void(std::size_t number, std::string_view result)>;

/// Results by the numbers of their calls, as they come.
template <class Result>
using taken_results = std::vector<std::optional<kept_result<Result>>>;

template <class Result>
[[nodiscard]] result_taker taker_of(taken_results<Result>& into) {
  return [&into](std::size_t number, std::string_view result) {
    if (into.size() <= number) into.resize(number + 1);
    into[number] = read_result<Result>(result);
  };
}

/// How the call of an instance has ended.
struct call_ending {
  instance_id from;
  failure why;
};

}  // namespace detail

/// Asks the instances of a role, at a calls edge.
///
///     mw::role_group workers;  // it outlives the tasks that use it
///     s.spawn(self.ask("steps", workers));
///     constexpr mw::remote_function<float(std::vector<float>, int)> sum{"sum"};
///     const float one = co_await workers.any(sum, {x, 2}, {.within = 5s});
///     const std::vector<float> of_each = co_await workers.all(sum, {x, 2});
///     const std::string answer = co_await workers.first("generate", request);
///
/// A method is named with its types by a `remote_function`, or by a text. The arguments
/// of a name with types stand in braces, and are copied by the call. Each is a value
/// (`argument`), and is converted as an `any_value` is; no side knows the types of the
/// other. `mw::alone` says nothing here. A method behind a text takes and gives bytes.
///
/// Arguments and results have up to 16 MiB; what is larger goes over a bulk edge.
/// Instances may come, go and be replaced: a call that waits is given to an instance as
/// soon as it is there.
///
/// A call of several instances names slow ones in the log, by one warning: once half of
/// the instances have ended, and it lasts both 1 s and three times as long as the last of
/// those.
///
/// Errors: unknown_outcome, see there; otherwise world_error with one of these. Its text
/// names the edge, the instance and the method.
/// - `timed_out` after `within`, `no_member_left` after `patience`.
/// - `unsupported`: the role has no method of that name.
/// - `invalid_argument`: the values do not fit the types of the other side, or only one
///   side has types. The text says what has come and what is wanted.
/// - `handler_failed`, with the text of the method's exception.
/// - `overloaded`: too many calls wait. `closed`: the runtime stops.
/// - The causes of a break, once no try is left.
///
/// Thread: the runtime's reactor. Lifetime: it outlives the tasks that ask.
class role_group {
 public:
  /// How it asks.
  struct options {
    int tries = 3;
    /// How long a call waits while no instance is there at all.
    duration patience = std::chrono::seconds(30);
    /// Calls that one instance has at once. More wait. A batch makes 512 at most, or one
    /// of each instance.
    std::size_t at_once = 64;
  };
  /// How the call of one instance has ended.
  struct outcome {
    instance_id from;
    std::string result;  ///< if it has answered
    failure why;         ///< if it has not

    /// True if it has answered.
    explicit operator bool() const noexcept { return !why; }
  };
  /// The same of a method with types. One that gives nothing leaves a `std::monostate`.
  template <class Result>
  struct typed_outcome {
    instance_id from;
    std::optional<detail::kept_result<Result>> result;  ///< if it has answered
    failure why;                                        ///< if it has not

    /// True if it has answered.
    explicit operator bool() const noexcept { return !why; }
  };
  /// What several instances give: nothing, or a list.
  template <class Result>
  using results = std::conditional_t<std::is_void_v<Result>, void, std::vector<Result>>;
  /// The arguments of one call, in braces.
  template <class... P>
  using values = std::type_identity_t<detail::call_values<P...>>;
  /// The arguments of several calls: one for each, or of a method with several parameters
  /// a tuple for each.
  template <class... P>
  using items = std::vector<typename detail::call_item<P...>::type>;

  role_group();
  explicit role_group(options how);
  role_group(const role_group&) = delete;
  role_group& operator=(const role_group&) = delete;
  ~role_group();

  /// Asks one instance, whichever has the fewest calls. Errors: those of `role_group`.
  [[nodiscard]] task<std::string> any(std::string method, std::string argument,
                                      role_call_options how = {});
  template <class Result, class... P>
  [[nodiscard]] task<Result> any(const remote_function<Result(P...)>& method,
                                 values<P...> arguments, role_call_options how = {}) {
    return one<Result>(asking(method, detail::asked_ones::one,
                              std::move(arguments).packed_alone(), how));
  }
  /// Asks that instance of the role. Errors: those of `role_group`.
  [[nodiscard]] task<std::string> at(std::uint32_t index, std::string method,
                                     std::string argument, role_call_options how = {});
  template <class Result, class... P>
  [[nodiscard]] task<Result> at(std::uint32_t index,
                                const remote_function<Result(P...)>& method,
                                values<P...> arguments, role_call_options how = {}) {
    detail::group_question asked =
        asking(method, detail::asked_ones::one, std::move(arguments).packed_alone(), how);
    asked.index = index;
    return one<Result>(std::move(asked));
  }
  /// Asks instance 0. Errors: those of `role_group`.
  [[nodiscard]] task<std::string> first(std::string method, std::string argument,
                                        role_call_options how = {}) {
    return at(0, std::move(method), std::move(argument), how);
  }
  template <class Result, class... P>
  [[nodiscard]] task<Result> first(const remote_function<Result(P...)>& method,
                                   values<P...> arguments, role_call_options how = {}) {
    return at(0, method, std::move(arguments), how);
  }
  /// Asks all instances that are there, once the least number that the graph wants are.
  /// Returns their results in the order of their indices, as `members` names them: none
  /// where that number is 0 and no instance is there. The first error ends it, and
  /// cancels what is left. Errors: those of `role_group`; world_error (`timed_out`) too
  /// if not enough of them come.
  [[nodiscard]] task<std::vector<std::string>> all(std::string method,
                                                   std::string argument,
                                                   role_call_options how = {});
  template <class Result, class... P>
  [[nodiscard]] task<results<Result>> all(const remote_function<Result(P...)>& method,
                                          values<P...> arguments,
                                          role_call_options how = {}) {
    return several<Result>(asking(method, detail::asked_ones::all,
                                  std::move(arguments).packed_alone(), how));
  }
  /// Does the same, and returns of each how it has ended: the loss of one is no error of
  /// the others. Errors: world_error (`timed_out`) if not enough of them come.
  [[nodiscard]] task<std::vector<outcome>> outcomes(std::string method,
                                                    std::string argument,
                                                    role_call_options how = {});
  template <class Result, class... P>
  [[nodiscard]] task<std::vector<typed_outcome<Result>>> outcomes(
      const remote_function<Result(P...)>& method, values<P...> arguments,
      role_call_options how = {}) {
    return each<Result>(asking(method, detail::asked_ones::all,
                               std::move(arguments).packed_alone(), how));
  }
  /// Asks instance 0 with the first argument, instance 1 with the second, and so on.
  /// Returns their results in that order. Errors: as `all`.
  [[nodiscard]] task<std::vector<std::string>> scatter(std::string method,
                                                       std::vector<std::string> arguments,
                                                       role_call_options how = {});
  template <class Result, class... P>
  [[nodiscard]] task<results<Result>> scatter(const remote_function<Result(P...)>& method,
                                              const items<P...>& arguments,
                                              role_call_options how = {}) {
    return several<Result>(asking(method, detail::asked_ones::by_index,
                                  detail::packed_items<P...>(arguments), how));
  }
  /// Makes a call for each argument. The instances that `all` would ask, but one at
  /// least, get even parts in the order of their indices: 5 arguments over 2 instances
  /// are 3 and 2. Returns the results in the order of the arguments; of no arguments
  /// none, at once. Errors: as `all`.
  [[nodiscard]] task<std::vector<std::string>> batch(std::string method,
                                                     std::vector<std::string> arguments,
                                                     role_call_options how = {});
  template <class Result, class... P>
  [[nodiscard]] task<results<Result>> batch(const remote_function<Result(P...)>& method,
                                            const items<P...>& arguments,
                                            role_call_options how = {}) {
    return several<Result>(asking(method, detail::asked_ones::in_parts,
                                  detail::packed_items<P...>(arguments), how));
  }
  /// Does the same, and returns of each call how it has ended. Errors: world_error
  /// (`timed_out`) if not enough instances come.
  [[nodiscard]] task<std::vector<outcome>> batch_outcomes(
      std::string method, std::vector<std::string> arguments, role_call_options how = {});
  template <class Result, class... P>
  [[nodiscard]] task<std::vector<typed_outcome<Result>>> batch_outcomes(
      const remote_function<Result(P...)>& method, const items<P...>& arguments,
      role_call_options how = {}) {
    return each<Result>(asking(method, detail::asked_ones::in_parts,
                               detail::packed_items<P...>(arguments), how));
  }

  /// Returns the instances that are there, in the order of their indices.
  [[nodiscard]] std::vector<instance_id> members() const;

  /// Asks by a world of two with that instance, until it is over; `role_context::ask`
  /// does so with all. Errors: those of `dispatcher::serve`.
  [[nodiscard]] task<void> reach(world& w, instance_id peer);

 private:
  friend class detail::role_core;

  template <class Result, class... P>
  [[nodiscard]] static detail::group_question asking(
      const remote_function<Result(P...)>& method, detail::asked_ones whom,
      std::vector<std::string> packed, role_call_options how) {
    static_assert(detail::called_by_values<Result, P...>,
                  "a method of a role takes and gives values (mw::argument) that last: "
                  "no register (T& or const T&), and as a result no view");
    return {std::string(method.name()), true, whom, {}, std::move(packed), how};
  }
  [[nodiscard]] task<void> ask_one(detail::group_question asked,
                                   detail::result_taker take);
  /// Ends with the first error.
  [[nodiscard]] task<void> ask_all(detail::group_question asked,
                                   detail::result_taker take);
  [[nodiscard]] task<std::vector<detail::call_ending>> ask_each(
      detail::group_question asked, detail::result_taker take);

  template <class Result>
  [[nodiscard]] task<Result> one(detail::group_question asked) {
    detail::taken_results<Result> taken;
    detail::result_taker take = detail::taker_of<Result>(taken);
    co_await ask_one(std::move(asked), std::move(take));
    if constexpr (!std::is_void_v<Result>) co_return std::move(*taken.at(0));
  }
  template <class Result>
  [[nodiscard]] task<results<Result>> several(detail::group_question asked) {
    detail::taken_results<Result> taken;
    detail::result_taker take = detail::taker_of<Result>(taken);
    co_await ask_all(std::move(asked), std::move(take));
    if constexpr (!std::is_void_v<Result>) {
      std::vector<Result> all;
      all.reserve(taken.size());
      for (auto& each : taken) all.push_back(std::move(*each));
      co_return all;
    }
  }
  template <class Result>
  [[nodiscard]] task<std::vector<typed_outcome<Result>>> each(
      detail::group_question asked) {
    detail::taken_results<Result> taken;
    detail::result_taker take = detail::taker_of<Result>(taken);
    std::vector<detail::call_ending> ended =
        co_await ask_each(std::move(asked), std::move(take));
    taken.resize(ended.size());
    std::vector<typed_outcome<Result>> all(ended.size());
    for (std::size_t n = 0; n < ended.size(); ++n) {
      all[n].from = std::move(ended[n].from);
      all[n].result = std::move(taken[n]);
      all[n].why = std::move(ended[n].why);
    }
    co_return all;
  }

  std::unique_ptr<detail::role_group_core> core_;
};

}  // namespace manyworlds::inline v0
