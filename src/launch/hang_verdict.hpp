// Hang verdict: the decision that a worker is stuck, by what the kernel, the worker
// itself and its peers say of it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// What one worker waits for.
struct hang_wait {
  std::string operation;
  std::string world;
  /// Nothing where it is all members, or any.
  std::optional<int> rank;
};

/// A member that a worker does not hear in a world.
struct hang_suspicion {
  std::string world;
  int rank = 0;
  /// The members of that world, which may have broken by the silence since.
  int size = 0;
};

/// All that is known of one worker. Times are those up to now.
struct hang_witness {
  struct membership {
    std::string world;
    int size = 0;
  };

  int rank = 0;
  pid_t pid = 0;
  /// It is another node's: its agent believes it, and judges it.
  bool is_elsewhere = false;

  /// The state that /proc shows, and for how long it has not run since it was seen there.
  char state = '?';
  duration in_state{0};
  /// It has waited for a disk within the limit, and went on.
  bool was_at_disk = false;

  /// It beats, as a program of this library does in `job.run`.
  bool beats = false;
  /// One of its beats was late within the limit.
  bool was_late = false;
  duration silent{0};
  duration without_turn{0};
  /// Since it last told its progress, or waited. Nothing if it never told its progress.
  std::optional<duration> without_progress = std::nullopt;
  std::optional<hang_wait> waits = std::nullopt;
  /// Those of its worlds that are up.
  std::vector<membership> worlds = {};
  std::vector<hang_suspicion> suspects = {};

  /// Of a program without the library that writes to files alone; nothing otherwise.
  std::optional<duration> without_output = std::nullopt;
  bool has_written = false;
};

enum class hang_reason : unsigned char {
  stopped,                ///< by a signal
  in_kernel,              ///< in uninterruptible sleep
  suspected,              ///< silent to its peers and to its agent
  stopped_and_suspected,  ///< silent to both, since it is stopped
  no_beats,               ///< silent, without a peer that could tell
  no_turns,               ///< its reactor is held by a task
  no_progress,            ///< while it waits for no other member
  no_output,
};

struct hang_verdict {
  int rank = 0;
  pid_t pid = 0;
  hang_reason reason = hang_reason::stopped;
  duration since{0};
  /// The workers that suspect it, or wait for it.
  std::vector<int> accusers;
  /// Who waits for whom in which operation; empty if none does.
  std::string waits;

  [[nodiscard]] bool is_stopped() const noexcept {
    return reason == hang_reason::stopped || reason == hang_reason::stopped_and_suspected;
  }
  /// Returns "rank 2 (pid 4711) is stuck: it is stopped for 2.1 s; rank 0 waits for rank
  /// 2 in recv of kv".
  [[nodiscard]] std::string text() const;
};

/// Returns whether its agent believes what it says of others.
[[nodiscard]] bool is_believed(const hang_witness& w, duration limit);

struct hang_question {
  /// From when on what stands still is stuck.
  duration limit{0};
  /// The same of uninterruptible sleep; at most that.
  duration kernel_limit{0};
  /// This process was held up itself: then it has seen nothing that counts.
  bool was_late = false;
  std::vector<hang_witness> workers;
};

/// Returns the workers that are stuck. Rules:
///
/// - The kernel alone convicts: a worker that is stopped, or sleeps uninterruptibly, and
///   has not run for the limit.
/// - Peers convict a worker that is silent itself, if they suspect it in most of its
///   worlds. A peer is not believed if beats of its own were late, or if it hears no
///   other member at all; those of other nodes are believed by their agents' word.
/// - A worker convicts itself by beats that tell no turn, or no progress while it waits
///   for no member, unless it is at a disk that serves it.
/// - A worker under a debugger is not stuck.
/// - Output convicts only if all workers without the library are silent, and no other
///   worker is stuck: the one that fell silent first.
[[nodiscard]] std::vector<hang_verdict> hang_verdicts(const hang_question& asked);

}  // namespace manyworlds::inline v0::detail
