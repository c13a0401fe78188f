// Process options: what is started, and how.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/detail/process_description.hpp"
#include "manyworlds/launch/exit_reason.hpp"
#include "manyworlds/launch/process_output.hpp"
#include "manyworlds/launch/restart_policy.hpp"

namespace manyworlds::inline v0 {

class process_guard;

/// One end of a supervised process, and what follows it.
struct process_end {
  exit_reason reason;
  /// The number of the start that it followed: 1 for the first.
  std::uint64_t start = 1;
  /// The pause before the next start; nothing if there is none.
  std::optional<duration> starts_again_in;
};

/// Describes a program and how it is started, for `supervised_process`.
///
///     mw::process_options how("./engine", {"--port", "0"});
///     how.set("CUDA_VISIBLE_DEVICES", "0").open_files(4096);
///     how.output(mw::to_file("engine.log"));
///     how.restart({.when = mw::restart_when::on_failure, .most = 3});
///     mw::supervised_process engine(rt, how);
///
/// A program without a slash is looked for along PATH of its own environment, as execvp
/// does. Arguments are passed as they are: no shell sees them. The program gets a session
/// of its own, no blocked or ignored signals, /dev/null as its input, its output, and no
/// other descriptor that is not passed.
///
/// Each program gets a variable MANYWORLDS_TREE, by which its descendants are found where
/// it has no control group.
///
/// Errors: the functions throw std::invalid_argument for what no program can be given:
/// a zero byte in a text, a name of a variable that is empty or has a '=', a negative
/// number of a descriptor, or one that is passed twice.
class process_options {
 public:
  explicit process_options(std::string program, std::vector<std::string> arguments = {});

  /// Adds an argument.
  process_options& argument(std::string value);
  /// Sets a variable of the environment.
  process_options& set(std::string name, std::string value);
  /// Removes a variable.
  process_options& unset(std::string name);
  /// Begins with an empty environment in place of the starter's, for what is set.
  process_options& clear_environment() noexcept;
  /// Sets the working folder. A program with a relative path is looked for from there.
  process_options& folder(std::string path);
  /// Gives the program this descriptor, under the number `as`. Lifetime: it stays open
  /// as long as the process may be started again.
  process_options& pass(int descriptor, int as);
  /// Gives the program the starter's standard input in place of /dev/null.
  process_options& inherit_input();

  /// Limits the number of its open files.
  process_options& open_files(std::uint64_t most);
  /// Limits the size of its core dumps, in bytes; 0 is none.
  process_options& core_size(std::uint64_t most);
  /// Limits the memory that it may lock, in bytes.
  process_options& locked_memory(std::uint64_t most);
  /// Limits its address space, in bytes.
  process_options& address_space(std::uint64_t most);
  /// Sets a limit by its number, such as RLIMIT_STACK; RLIM_INFINITY is without one. The
  /// hard limit is raised where it is lower, which needs the right to do so.
  process_options& limit(int resource, std::uint64_t value);
  /// Binds the program to these CPUs.
  process_options& cpus(std::vector<unsigned> numbers);
  /// Takes its memory from this NUMA node only. Some containers refuse that, and the
  /// start fails by `start_step::memory_node`.
  process_options& memory_node(unsigned number);

  /// Sets where its output goes, and its errors too. It is inherited by default.
  process_options& output(process_output where);
  /// Sets where its errors go, apart from its output.
  process_options& errors(process_output where);

  /// Starts it again when it ends, by this policy.
  process_options& restart(restart_policy policy);
  /// Sets a function that is told of each end, on the reactor.
  process_options& when_ended(std::function<void(const process_end&)> told);
  /// Lets the guard end the program's tree when this process is killed. Lifetime: the
  /// guard outlives the runtime.
  process_options& guarded_by(process_guard& guard) noexcept;

 private:
  friend class supervised_process;
  detail::process_description what_;
  process_output output_ = process_output::inherit();
  std::optional<process_output> errors_;
  bool inherits_input_ = false;
  restart_policy policy_;
  std::function<void(const process_end&)> told_;
  process_guard* guard_ = nullptr;
};

}  // namespace manyworlds::inline v0
