// Job leadership: a master that leads a job, or stands by while another one does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/mpmd/job_graph.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "mpmd/context_store.hpp"
#include "mpmd/job_master.hpp"
#include "mpmd/job_meeting.hpp"
#include "mpmd/master_seat.hpp"

namespace manyworlds::inline v0::detail {

/// Takes the job's seat and leads a term; while another master has the seat it stands by,
/// in a world with that one. When that world tells that the leader's process has ended,
/// the seat is freed at once; when it is only silent, its lease has to end. A seat that
/// is lost while this master leads stops nothing: terms fence (laws G-b, G-c).
///
/// Thread: the runtime's reactor. Lifetime: runtime, stores and seat outlive it.
class job_leadership {
 public:
  job_leadership(runtime& rt, store& meeting, context_store& context, master_seat& seat,
                 std::optional<job_graph> begins, std::string job,
                 master_options options);
  job_leadership(const job_leadership&) = delete;
  job_leadership& operator=(const job_leadership&) = delete;

  /// Ends with the job's exit code. A context that does not answer is waited for; one
  /// that is deposed stands by again. Errors: the others of `job_master::run`.
  [[nodiscard]] task<int> run();

 private:
  [[nodiscard]] task<void> take_seat();
  [[nodiscard]] task<void> leave_seat();
  /// Ends when that master's taking of the seat has ended, or it was seen to die.
  [[nodiscard]] task<void> stand_by(seat_holder leader);
  [[nodiscard]] task<void> see_death_of(seat_holder leader);
  /// Looks until the job has a term, which says that it was begun. It never ends.
  [[nodiscard]] task<void> note_term();
  /// Returns whether the job that this master stood by for was erased since.
  [[nodiscard]] task<bool> is_forgotten();
  /// Returns why this master may not lead what the context holds, nor stand by for it:
  /// it was given another job's graph. Empty: it may.
  [[nodiscard]] task<std::string> objection_to_graph();
  /// Leads one term. Nothing: another master leads, or may do so.
  [[nodiscard]] task<std::optional<int>> lead();
  [[nodiscard]] task<int> lead_one_term();
  /// Takes the seat again where it was lost. Errors: context_error (`deposed` if another
  /// master has taken a term meanwhile).
  [[nodiscard]] task<void> keep_seat(const job_master& master);
  [[nodiscard]] task<void> greet_standbys();
  void note(const std::string& line) const;

  runtime& runtime_;
  store& meeting_;
  job_meeting keys_;
  context_store& context_;
  master_seat& seat_;
  const std::optional<job_graph> begins_;
  const std::string job_;
  const master_options options_;
  /// Tells this master from others; standbys find it by that.
  const std::string name_;
  /// The highest term that was seen while this master stood by.
  std::uint64_t seen_term_ = 0;
};

}  // namespace manyworlds::inline v0::detail
