// Role group core: calls of one instance to those of a role.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/mpmd/role_group.hpp"
#include "manyworlds/serve/dispatcher.hpp"

namespace manyworlds::inline v0::detail {

class runtime_core;

/// What one instance is asked by a question that several get.
struct instance_part {
  instance_id whom;
  /// The calls that it has, by their numbers, and how many of them were begun.
  std::vector<std::size_t> calls;
  std::size_t begun = 0;
  /// Tasks that still make them.
  std::size_t running = 0;
};

/// A question of several instances while it lasts.
struct joint_call {
  explicit joint_call(group_question q, result_taker t)
      : asked(std::move(q)), take(std::move(t)) {}

  group_question asked;
  result_taker take;
  time_point began;
  std::vector<instance_part> parts;
  /// By the numbers of the calls.
  std::vector<call_ending> endings;
  /// Parts that have ended, and when the last of them did, counted from the begin.
  std::size_t ended = 0;
  duration last_end = duration::zero();
  event changed;
};

/// The dispatcher cannot tell a call that may be repeated from others: it tries once, and
/// what may be repeated is given to it again, under its own id. Thread: the reactor.
class role_group_core {
 public:
  explicit role_group_core(role_group::options options);

  void begin(std::string edge, instance_id self, std::size_t least);
  [[nodiscard]] task<void> reach(world& w, instance_id peer);
  [[nodiscard]] std::vector<instance_id> members() const;

  /// Asks one instance, and takes its result. Errors: those of a role group.
  [[nodiscard]] task<void> ask_one(group_question asked, result_taker take);
  /// Asks several, and returns how each call has ended, or ends by the first error.
  /// Errors: those of `role_group::all`, or those of `role_group::outcomes`.
  [[nodiscard]] task<std::vector<call_ending>> ask_several(group_question asked,
                                                           result_taker take,
                                                           bool ends_by_first_error);

 private:
  /// One call of a question.
  struct one_call {
    std::optional<std::uint32_t> index;
    std::size_t number = 0;
    /// The instance that was chosen last.
    std::optional<std::uint32_t> chosen;
  };

  [[nodiscard]] task<std::string> attempt(one_call& which, const std::string& head,
                                          const std::string& argument, duration limit);
  [[nodiscard]] task<std::string> call(const group_question& asked, one_call& which);
  [[nodiscard]] task<void> take_call(const group_question& asked,
                                     const result_taker& take, one_call which);
  [[nodiscard]] task<void> make_calls(joint_call& all, instance_part& own,
                                      bool ends_by_first_error);
  [[nodiscard]] task<void> name_slow_ones(joint_call& all);
  void tell_slow_ones(const joint_call& all, duration lasted) const;

  /// Waits for that many members. Errors: world_error (`timed_out`).
  [[nodiscard]] task<std::vector<instance_id>> enough_members(const group_question& asked,
                                                              std::size_t least);
  [[nodiscard]] task<std::vector<instance_part>> parts_of(const group_question& asked);
  [[nodiscard]] std::vector<instance_part> parts_by_index(std::size_t count) const;
  /// Returns which of the workers gets the call, and notes which instance that is.
  [[nodiscard]] std::optional<std::size_t> choose(
      one_call& which, std::span<const worker_status> workers) const;
  /// Completes an error with what was asked of which instance.
  [[nodiscard]] failure described(failure f, const one_call& which,
                                  const std::string& method) const;

  const role_group::options options_;
  dispatcher dispatcher_;
  std::string edge_;
  instance_id self_;
  std::size_t least_ = 1;
  std::uint64_t next_id_ = 0;
  std::map<std::string, instance_id, std::less<>> peers_;  // by the names of their worlds
  std::weak_ptr<const runtime_core> runtime_;              // that of the worlds
};

}  // namespace manyworlds::inline v0::detail
