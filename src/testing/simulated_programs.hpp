// Simulated programs: starts programs in a simulation.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/process_host.hpp"
#include "io/reactor.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "manyworlds/detail/root.hpp"
#include "manyworlds/testing/simulated_program.hpp"
#include "testing/simulated_clockwork.hpp"
#include "testing/simulated_kernel.hpp"

namespace manyworlds::inline v0::detail {

/// One start. It has a process of the simulation with one reactor, and lives until its
/// body's frame is gone.
class simulated_child final : public std::enable_shared_from_this<simulated_child> {
 public:
  simulated_child(simulation& sim, simulated_clockwork& clock, reactor& starter,
                  simulated_process& process, const process_description& what,
                  const simulated_body& body);
  simulated_child(const simulated_child&) = delete;
  simulated_child& operator=(const simulated_child&) = delete;
  ~simulated_child();

  /// Lets the body begin. Called once, in an event of the simulation.
  void begin();
  void signal(int number);
  /// Ends it by SIGKILL, as the kernel does.
  void kill(bool for_memory);

  [[nodiscard]] pid_t pid() const noexcept;
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }
  /// Says whether nothing of it is left.
  [[nodiscard]] bool is_cleared() const noexcept { return !running_; }
  /// Called when its simulation ends, which turns nothing any longer.
  void leave_behind() noexcept;
  [[nodiscard]] const process_status& status() const noexcept { return status_; }
  /// Is set on the starter's reactor.
  [[nodiscard]] event& told() noexcept { return told_; }

 private:
  [[nodiscard]] task<void> run();
  void body_ended() noexcept;
  void end_with(process_status status);
  void clear_up();
  void terminate() noexcept {
    is_terminate_posted_ = false;
    self_.terminate_.set();
  }
  void unwind() noexcept;
  void tell() noexcept { told_.set(); }

  simulation& sim_;
  simulated_clockwork& clock_;
  reactor& starter_;
  simulated_process& process_;
  simulated_body make_;
  simulated_program self_;
  std::unique_ptr<reactor> reactor_;
  task<void> body_;
  std::unique_ptr<task_root> root_;
  process_status status_;
  bool has_ended_ = false;
  bool is_unwound_ = false;
  bool terminate_waits_ = false;
  bool is_terminate_posted_ = false;
  event told_;
  member_work<&simulated_child::terminate> terminate_{*this};
  member_work<&simulated_child::unwind> unwind_{*this};
  kept_member_work<&simulated_child::tell> tell_{*this};
  std::shared_ptr<simulated_child> running_;  ///< itself, until it is cleared up
};

/// The programs of one simulated process.
class simulated_programs final : public process_host, private simulated_resident {
 public:
  simulated_programs(simulation& sim, simulated_process& owner,
                     simulated_clockwork& clock);
  ~simulated_programs() override;

  void add(std::string name, simulated_body body) {
    bodies_[std::move(name)] = std::move(body);
  }
  void fail_next(const std::string& name, start_failure why) {
    failures_[name].push_back(std::move(why));
  }
  [[nodiscard]] std::vector<pid_t> running() const;
  /// Returns whether one is not cleared up, or is still held by its starter.
  [[nodiscard]] bool has_any() const noexcept;
  /// Returns null if none that runs has that number.
  [[nodiscard]] simulated_child* find(pid_t pid) const noexcept;

  [[nodiscard]] task<start_outcome> start(const process_description& what,
                                          tree_listener* listener) override;
  [[nodiscard]] bool passes_descriptors() const noexcept override { return false; }
  [[nodiscard]] std::string take_notice() override { return {}; }

 private:
  void killed() noexcept override;

  simulation& sim_;
  simulated_process& owner_;
  simulated_clockwork& clock_;
  std::map<std::string, simulated_body> bodies_;
  std::map<std::string, std::deque<start_failure>> failures_;
  std::vector<std::shared_ptr<simulated_child>> children_;
};

}  // namespace manyworlds::inline v0::detail
