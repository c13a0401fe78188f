// Process list: what /proc tells of the processes of this machine.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace manyworlds::inline v0::detail {

struct listed_process {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t session = 0;
  char state = '?';
  /// In ticks since the machine was started. With the number it names one process.
  std::uint64_t started = 0;

  /// Returns whether it has not ended: a zombie only waits to be reaped.
  [[nodiscard]] bool is_alive() const noexcept { return state != 'Z' && state != 'X'; }
};

/// Returns nothing if there is no such process, or /proc does not tell.
[[nodiscard]] std::optional<listed_process> look_at_process(pid_t pid);
/// Returns whether a process is that one, descends from it, or is in its session: the
/// session remains where a parent has ended.
[[nodiscard]] bool descends_from(pid_t pid, pid_t ancestor);
/// Throws std::system_error for an errno that says nothing of a process, but that looking
/// is not possible now, as without a free descriptor.
void require_look(int error);
/// Returns all that can be seen. Errors: those of `require_look`.
[[nodiscard]] std::vector<listed_process> list_processes();
/// Signals exactly that process, not a later one with its number. False: it is gone.
/// Where pidfd_open is refused, a few microseconds are left in which both could change.
bool signal_process(const listed_process& which, int number) noexcept;

/// A process and one variable of the environment that it was executed with, as
/// NAME=value; empty where there is none, or we may not look.
struct marked_process : listed_process {
  std::string mark;
};

/// Walks through /proc for several that ask at a time: questions share the first walk
/// that begins after them.
class process_census {
 public:
  /// Looks for that variable in processes that are younger than this one.
  explicit process_census(std::string name);

  /// Begins a question. Thread: any.
  [[nodiscard]] std::uint64_t ask() noexcept {
    // Release: pairs with the acquire in `answer`. Another question may begin that walk.
    return 1 + asked_.fetch_add(1, std::memory_order_release);
  }
  /// Returns all processes at a moment after the question began. Thread: one at a time.
  /// Lifetime: the answer stands until the next call. Errors: those of `require_look`.
  [[nodiscard]] const std::vector<marked_process>& answer(std::uint64_t question);

 private:
  [[nodiscard]] std::vector<marked_process> walk() const;

  const std::string name_;
  std::uint64_t own_start_ = 0;
  std::atomic<std::uint64_t> asked_{0};
  std::uint64_t answered_ = 0;
  std::vector<marked_process> seen_;
};

}  // namespace manyworlds::inline v0::detail
