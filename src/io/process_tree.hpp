// Process tree: all that descends from a process that was started here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/descriptor.hpp"
#include "io/process_host.hpp"
#include "io/process_list.hpp"

namespace manyworlds::inline v0::detail {

/// Programs are started with this variable, and what descends from them inherits it.
inline constexpr const char* tree_variable = "MANYWORLDS_TREE";

/// Finds, signals and ends a tree. Thread: any, one at a time; calls read /proc or the
/// control group, and may take milliseconds. Errors: std::system_error where there is no
/// descriptor to look with.
class process_tree {
 public:
  process_tree() = default;
  process_tree(const process_tree&) = delete;
  process_tree& operator=(const process_tree&) = delete;
  virtual ~process_tree() = default;

  /// Returns a descriptor of the group that the first process enters; -1 for none.
  [[nodiscard]] virtual int entry() const noexcept { return -1; }
  /// The next call answers for what is there from now on. Thread: any.
  virtual void ask() noexcept {}
  /// Tells which process was started. It is not called if none was.
  virtual void began([[maybe_unused]] pid_t first) {}
  /// Sends a signal to all that lives, and returns the number of processes.
  virtual std::size_t signal(int number) = 0;
  /// Sends a signal to those that `signal` has missed, since a parent has started them
  /// meanwhile and ended. What descends from a living one that was told is left to that
  /// one: it may be how it obeys.
  virtual std::size_t signal_missed(int number) = 0;
  /// Goes towards the end of all that lives, and returns the number of processes. It is
  /// called until the tree is empty; what is started meanwhile does not escape.
  virtual std::size_t kill() = 0;
  [[nodiscard]] virtual bool is_empty() = 0;

 protected:
  std::size_t signal_each(const std::vector<listed_process>& living, int number);
  std::size_t signal_orphans(const std::vector<listed_process>& living, int number);

 private:
  std::set<std::pair<pid_t, std::uint64_t>> told_;
};

/// A control group of version 2 below our own. It has no controllers, so that neither
/// delegation nor the rule of inner nodes without processes matters. Its processes cannot
/// leave it by a session or a parent of their own.
class group_tree final : public process_tree {
 public:
  /// Makes a folder. Errors: std::system_error.
  explicit group_tree(std::string folder);
  /// Uses one that exists and does not enter or remove it: for a guard.
  struct existing {};
  group_tree(std::string folder, existing) : folder_(std::move(folder)) {}
  /// Removes the folder where it is empty, else marks it: what is left in it lives on.
  ~group_tree() override;

  [[nodiscard]] int entry() const noexcept override { return entry_.get(); }
  std::size_t signal(int number) override;
  std::size_t signal_missed(int number) override;
  std::size_t kill() override;
  [[nodiscard]] bool is_empty() override;

 private:
  [[nodiscard]] std::vector<listed_process> members() const;

  std::string folder_;
  unique_descriptor entry_;
};

/// Removes an empty group, and empty ones below it.
void remove_group(const std::string& folder);

/// Returns the folder of this process's own control group, or says in `why_not` why there
/// is none.
[[nodiscard]] std::string own_group_folder(std::string& why_not);

/// Returns the folder in which this process may make control groups, or says in
/// `why_not` why there is none. It tries to make one.
[[nodiscard]] std::string find_group_folder(std::string& why_not);

/// The descendants by /proc: what has the session of the first process, what carries its
/// variable in the environment, and what descends from any of these.
///
/// A process is missed if it has a session of its own, an environment without the
/// variable, and no ancestor left that is found. What was found once stays found.
class listed_tree final : public process_tree {
 public:
  /// The variable as NAME=value.
  listed_tree(std::string variable, std::shared_ptr<process_census> census)
      : variable_(std::move(variable)), census_(std::move(census)) {}

  void ask() noexcept override {
    question_.store(census_->ask(), std::memory_order_relaxed);
  }
  void began(pid_t first) override;
  std::size_t signal(int number) override;
  std::size_t signal_missed(int number) override;
  std::size_t kill() override;
  [[nodiscard]] bool is_empty() override;

 private:
  [[nodiscard]] std::vector<listed_process> living();

  const std::string variable_;
  const std::shared_ptr<process_census> census_;
  std::atomic<std::uint64_t> question_{0};
  /// Those that lived at the last walk through /proc.
  std::vector<listed_process> seen_;
  /// Those that `kill` has stopped.
  std::set<std::pair<pid_t, std::uint64_t>> stopped_;
  int rounds_ = 0;  ///< of stopping
  pid_t first_ = 0;
  std::uint64_t first_started_ = 0;
};

}  // namespace manyworlds::inline v0::detail
