// Process core: one supervised process, with all its starts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "io/process_host.hpp"
#include "io/reactor.hpp"
#include "launch/output_pump.hpp"
#include "launch/restart_budget.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "manyworlds/launch/supervised_process.hpp"
#include "manyworlds/source_position.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

/// What is started, with `process_options` taken apart.
struct process_plan {
  process_description what;
  process_output output;
  std::optional<process_output> errors;
  bool inherits_input = false;
  restart_policy policy;
  std::function<void(const process_end&)> told;
  tree_listener* guard = nullptr;
};

/// Two children of one scope: `live` starts the program, awaits its end and starts it
/// again; `obey` waits until it is told to stop, and ends the tree.
///
/// A task of the runtime holds it, which no cancellation cuts: it ends when `abandon` or
/// `stop` was called and all processes are gone. Thread: the reactor's, but for
/// `abandon`.
class process_core final : public std::enable_shared_from_this<process_core> {
 public:
  /// Errors: those of `supervised_process`.
  process_core(runtime& rt, process_plan plan, source_position where);
  process_core(const process_core&) = delete;
  process_core& operator=(const process_core&) = delete;

  /// Lets a task of the runtime hold it. Later calls do nothing.
  void begin();
  [[nodiscard]] task<void> started();
  [[nodiscard]] task<exit_reason> ended();
  [[nodiscard]] task<void> stop(duration patience);
  /// Returns whether there is no tree to end from now on.
  [[nodiscard]] bool leave_descendants() noexcept;
  /// Kills the tree. Thread: any. Called once, last of all.
  void abandon() noexcept;

  [[nodiscard]] hosted_process* running() noexcept {
    return process_ && !process_->has_ended() ? process_.get() : nullptr;
  }
  [[nodiscard]] std::uint64_t starts() const noexcept { return starts_; }

 private:
  using pumps = std::vector<std::shared_ptr<output_pump>>;

  [[nodiscard]] static task<void> hold(std::shared_ptr<process_core> self);
  [[nodiscard]] task<void> run();
  [[nodiscard]] task<void> live(scope& s);
  [[nodiscard]] task<void> obey();
  [[nodiscard]] task<exit_reason> run_once(scope& s);
  [[nodiscard]] task<exit_reason> await_end();
  [[nodiscard]] task<void> end_tree();
  [[nodiscard]] task<bool> kill_tree();
  [[nodiscard]] task<void> pause(duration longest);
  void connect_output(process_description& what, std::vector<unique_descriptor>& given);
  void connect(const process_output& to, std::vector<int> numbers,
               process_description& what, std::vector<unique_descriptor>& given);
  [[nodiscard]] exit_reason failed_start(const start_failure& why) const;
  void tell(const exit_reason& why, std::optional<duration> pause);
  void ask(time_point kill_at) noexcept;
  void note_signal(stop_step step) noexcept;
  void be_abandoned() noexcept;
  void give_up(const std::string& why) noexcept;

  runtime& runtime_;
  runtime_core& core_;
  reactor& home_;
  process_host& host_;
  const process_plan plan_;
  const source_position where_;
  restart_budget budget_;
  std::unique_ptr<hosted_process> process_;
  pumps pumps_;
  time_point started_at_{};
  time_point kill_at_ = time_point::max();
  std::uint64_t starts_ = 0;
  stop_step stop_step_ = stop_step::none;
  std::optional<exit_reason> end_;  ///< the last one
  bool has_begun_ = false;
  bool is_left_ = false;             ///< the tree outlived SIGKILL
  std::stop_source functions_gone_;  ///< by the destructor of its owner
  event started_;                    ///< or never will be
  event settled_;                    ///< no start is under way
  event changed_;  ///< the program has ended, or there is another time to kill
  event asked_;    ///< to stop
  event over_;     ///< the last end
  event gone_;     ///< all of the tree
  kept_member_work<&process_core::be_abandoned> abandoned_{*this};
};

}  // namespace manyworlds::inline v0::detail
