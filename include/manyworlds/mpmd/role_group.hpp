// Role group: the asking side of a calls edge.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/coro/task.hpp"
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

/// Asks the instances of a role, at a calls edge.
///
///     mw::role_group workers;  // it outlives the tasks that use it
///     s.spawn(self.ask("steps", workers));
///     const std::string one = co_await workers.any("generate", text);
///     const auto losses = co_await workers.all("train", "7");
///     std::printf("rank 0: %s\n", losses.at(0).c_str());
///
/// Arguments and results are any bytes, up to 16 MiB; what is larger goes over a bulk
/// edge. Instances may come, go and be replaced: a call that waits is given to an
/// instance as soon as it is there.
///
/// Errors: unknown_outcome, see there; otherwise world_error with one of these. Its text
/// names the edge, the instance and the method.
/// - `timed_out` after `within`, `no_member_left` after `patience`.
/// - `unsupported`: the role has no method of that name.
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
    /// Calls that one instance has at once, and of one `batch` in all. More wait.
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

  role_group();
  explicit role_group(options how);
  role_group(const role_group&) = delete;
  role_group& operator=(const role_group&) = delete;
  ~role_group();

  /// Asks one instance, whichever has the fewest calls. Errors: those of `role_group`.
  [[nodiscard]] task<std::string> any(std::string method, std::string argument,
                                      role_call_options how = {});
  /// Asks that instance of the role. Errors: those of `role_group`.
  [[nodiscard]] task<std::string> at(std::uint32_t index, std::string method,
                                     std::string argument, role_call_options how = {});
  /// Asks instance 0. Errors: those of `role_group`.
  [[nodiscard]] task<std::string> first(std::string method, std::string argument,
                                        role_call_options how = {}) {
    return at(0, std::move(method), std::move(argument), how);
  }
  /// Asks all instances that are there, once the least number that the graph wants are.
  /// Returns their results in the order of their indices, as `members` names them. The
  /// first error ends it, and cancels what is left. Errors: those of `role_group`;
  /// world_error (`timed_out`) too if not enough of them come.
  [[nodiscard]] task<std::vector<std::string>> all(std::string method,
                                                   std::string argument,
                                                   role_call_options how = {});
  /// Does the same, and returns of each how it has ended: the loss of one is no error of
  /// the others. Errors: world_error (`timed_out`) if not enough of them come.
  [[nodiscard]] task<std::vector<outcome>> outcomes(std::string method,
                                                    std::string argument,
                                                    role_call_options how = {});
  /// Asks instance 0 with the first argument, instance 1 with the second, and so on.
  /// Returns their results in that order. Errors: as `all`.
  [[nodiscard]] task<std::vector<std::string>> scatter(std::string method,
                                                       std::vector<std::string> arguments,
                                                       role_call_options how = {});
  /// Asks for each argument whichever instance has the fewest calls. Returns the results
  /// in the order of the arguments. `within` is for each of them. Errors: as `all`.
  [[nodiscard]] task<std::vector<std::string>> batch(std::string method,
                                                     std::vector<std::string> arguments,
                                                     role_call_options how = {});

  /// Returns the instances that are there, in the order of their indices.
  [[nodiscard]] std::vector<instance_id> members() const;

  /// Asks by a world of two with that instance, until it is over; `role_context::ask`
  /// does so with all. Errors: those of `dispatcher::serve`.
  [[nodiscard]] task<void> reach(world& w, instance_id peer);

 private:
  friend class detail::role_core;
  std::unique_ptr<detail::role_group_core> core_;
};

}  // namespace manyworlds::inline v0
