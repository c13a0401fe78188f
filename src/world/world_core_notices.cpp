// What a world is told of its members: by the service thread, and by its backend.
#include "world/world_core.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "duration_text.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {
/// The reactor has at least this long to bring up a world that was formed at the last
/// moment.
constexpr duration shortest_take = std::chrono::milliseconds(500);
/// When a data connection ends, what its peer said on the link before is usually read
/// within this time.
constexpr duration judgement_pause = std::chrono::milliseconds(50);
}  // namespace

// --- notices from the service

bool world_core::has_left(rank_t rank) const noexcept {
  MW_ASSERT(rank >= 0 && static_cast<std::size_t>(rank) < has_left_.size(),
            "a formed world knows of each rank whether it has left");
  return has_left_[static_cast<std::size_t>(rank)];
}

void world_core::link_lost(const link& l, enum cause why,
                           const std::string& detail) noexcept {
  for (rank_t r = 0; r < static_cast<rank_t>(links_.size()); ++r) {
    if (links_[static_cast<std::size_t>(r)].get() != &l || has_left(r)) continue;
    break_with(describe_failure(why, r, operation_kind::none, detail));
  }
}

time_point world_core::examine_silence(time_point now) noexcept {
  MW_ASSERT(runtime_->service().is_current(), "silence is judged on the service reactor");
  const world_state s = state();
  // Formed, and about to be up.
  if (s == world_state::forming && epoch() != 0) {
    const time_point up_by = std::max(later(forming_since_, options_.form),
                                      later(committed_at_, shortest_take));
    if (now >= up_by) break_as_not_turned(now);
    return now;
  }
  time_point due = time_point::max();
  if (s != world_state::up && s != world_state::closing) return due;
  for (rank_t r = 0; r < static_cast<rank_t>(links_.size()); ++r) {
    if (r == options_.rank || has_left(r)) continue;
    const duration silence = now - links_[static_cast<std::size_t>(r)]->last_heard();
    auto& suspect = suspects_[static_cast<std::size_t>(r)];
    const bool is_now = silence >= options_.suspect_after;
    if (suspect.exchange(is_now, std::memory_order_relaxed) != is_now) {
      if (is_now) tally_.note_suspicion();
      channel_waiters told;
      {
        const std::lock_guard lock(mutex_);
        const auto kind =
            is_now ? world_event_kind::suspect : world_event_kind::recovered;
        if (state() == world_state::up || state() == world_state::closing)
          tell_event(told, kind, r);
      }
      told.resume_all();
      runtime_->log(
          is_now ? log_level::warning : log_level::info,
          fmt::format("{}@{}: rank {} (pid {}) {}", options_.name.view(), epoch(), r,
                      view_.member(r).identity.pid,
                      is_now ? "is suspect: not heard of for " + duration_text(silence)
                             : "is heard again"));
    }
    if (silence >= options_.broken_after) {
      break_with(describe_failure(cause::silent_peer, r, operation_kind::none, {}));
    }
    // Each next look may find that a suspect was heard again, or break the world.
    const duration heard_ago = std::max(silence, duration::zero());
    due = std::min(due, is_now ? now : later(now, options_.suspect_after - heard_ago));
  }
  return due;
}

// The thread that turns the reactor again finds the world broken; the others do not
// wait for that. Law 8 protects worlds that are up from a user's thread; this one never
// was.
void world_core::break_as_not_turned(time_point now) noexcept {
  break_with(describe_failure(
      cause::not_turned, options_.rank, operation_kind::form,
      fmt::format(
          "all members were connected {} ago, but the reactor of this runtime has "
          "not been turned since, and its time to form, {}, is up: a task blocks "
          "it, or run(), start() or poll() is missing",
          duration_text(now - committed_at_), duration_text(options_.form))));
}

void world_core::note_departures() noexcept {
  std::vector<rank_t> departed;
  std::vector<std::pair<rank_t, int>> ended;
  {
    const std::lock_guard lock(mutex_);
    MW_ASSERT(departures_queued_, "departures are noted by the step that was queued");
    departed.swap(departed_);
    ended.swap(ended_connections_);
    departures_queued_ = false;
  }
  for (const rank_t r : departed) {
    MW_ASSERT(static_cast<std::size_t>(r) < has_left_.size(), "a member has a rank");
    has_left_[static_cast<std::size_t>(r)] = true;
    suspects_[static_cast<std::size_t>(r)].store(false, std::memory_order_relaxed);
  }
  auto judge = [](std::shared_ptr<world_core> self, rank_t r, int error) -> task<void> {
    // Usually the cause has come by then, and nothing needs to be asked.
    co_await sleep_for(judgement_pause);
    if (self->state() == world_state::broken || self->has_left(r)) co_return;
    // A peer that breaks a world says why on its link before it closes a connection of
    // that world, and one that dies loses its link too. The two connections are not
    // ordered. So the peer is asked: what it said before comes before its answer.
    const std::shared_ptr<link> control = self->links_[static_cast<std::size_t>(r)];
    try {
      co_await within(control->all_heard(), self->options_.broken_after);
    } catch (const timed_out&) {
      // It lives and does not answer: no better cause is known.
    }
    if (self->has_left(r)) co_return;
    self->break_with(self->describe_failure(
        cause::connection_lost, r, operation_kind::none,
        error ? std::strerror(error) : "the peer closed its data connection"));
  };
  for (const auto& [r, error] : ended) {
    runtime_->peers().spawn(judge(shared_from_this(), r, error));
  }
}

void world_core::tell_event(channel_waiters& told, world_event_kind kind, rank_t about,
                            enum cause why) const noexcept {
  world_event e;
  e.kind = kind;
  e.world = options_.name;
  e.epoch = epoch();
  e.rank = about;
  e.cause = why;
  runtime_->events().tell(e, told);
}

// --- the backend's events, on the reactor

void world_core::tell_service_of(rank_t departed,
                                 std::optional<int> connection_error) noexcept {
  bool queue = false;
  {
    const std::lock_guard lock(mutex_);
    if (connection_error) {
      ended_connections_.emplace_back(departed, *connection_error);
    } else {
      departed_.push_back(departed);
    }
    queue = !std::exchange(departures_queued_, true);
  }
  if (queue) on_service(departures_step_);
}

void world_core::connection_ended(rank_t peer, int error) noexcept {
  tell_service_of(peer, error);
}

void world_core::must_break(rank_t peer, enum cause why, std::string detail) noexcept {
  // A peer that beats, with a reactor that neither turns nor is parked, is blocked in
  // user code: it lives and breaks no world (law 8). The backend asks again. One that
  // does not beat is silent; that breaks the world elsewhere.
  if (why == cause::stalled && peer >= 0 && peer < view_.size() &&
      peer != options_.rank) {
    const link& l = *links_[static_cast<std::size_t>(peer)];
    if (runtime_->user().now() - l.peer_progressed() > 2 * runtime_->options().heartbeat)
      return;
  }
  break_with(describe_failure(why, peer, operation_kind::none, std::move(detail)));
}

void world_core::peer_left(rank_t peer) noexcept {
  MW_ASSERT(runtime_->user().is_current(), "a backend tells its world on the reactor");
  MW_ASSERT(
      peer >= 0 && static_cast<std::size_t>(peer) < left_.size() && peer != options_.rank,
      "a backend tells of another member");
  left_[static_cast<std::size_t>(peer)] = true;
  // Queued before the peer is told that we know: it may end right after, and must not
  // seem to have died.
  tell_service_of(peer, std::nullopt);
  if (!left_by_all()) return;
  channel_waiters told;
  {
    const std::lock_guard lock(mutex_);
    if (state() != world_state::up) return;
    MW_ASSERT(failure_.cause == cause::none, "a world that is up has not failed");
    failure_ = describe_failure(cause::closed, peer, operation_kind::none,
                                "all others have left");
    enter(world_state::closed);
    tell_event(told, world_event_kind::closed, peer, cause::closed);
  }
  told.resume_all();
  runtime_->log(log_level::info, fmt::format("{}@{} is closed: all others have left",
                                             options_.name.view(), epoch()));
  // It stays registered until its last connection has ended: a runtime that ends waits
  // for that.
  over_.set();
}

bool world_core::left_by_all() const noexcept {
  for (rank_t r = 0; r < view_.size(); ++r) {
    if (r != options_.rank && !left_[static_cast<std::size_t>(r)]) return false;
  }
  return true;
}

void world_core::heard(rank_t peer) noexcept {
  MW_ASSERT(static_cast<std::size_t>(peer) < links_.size() && peer != options_.rank,
            "bytes come from another member");
  links_[static_cast<std::size_t>(peer)]->note_heard(runtime_->user().now());
}

void world_core::log(log_level level, std::string line) noexcept {
  runtime_->log(level, fmt::format("{}@{}: {}", options_.name.view(), epoch(), line));
}

}  // namespace manyworlds::inline v0::detail
