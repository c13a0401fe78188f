#include "world/world_members.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "duration_text.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "world/control_message.hpp"
#include "world/runtime_core.hpp"
#include "world/world_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {
/// When a data connection ends, what its peer said on the link before is usually read
/// within this time.
constexpr duration judgement_pause = std::chrono::milliseconds(50);
}  // namespace

world_members::world_members(world_core& core)
    : core_(core),
      // A wrong size is refused when the world is awaited; it must not take memory
      // here.
      suspects_(static_cast<std::size_t>(
          std::clamp<rank_t>(core.options().size, 0, world_view::largest_size))) {}

// --- any thread

bool world_members::is_over_memory(rank_t rank) const noexcept {
  MW_ASSERT(rank >= 0 && static_cast<std::size_t>(rank) < over_memory_.size(),
            "each member has a transport");
  return over_memory_[static_cast<std::size_t>(rank)];
}

bool world_members::is_suspect(rank_t rank) const noexcept {
  return rank >= 0 && static_cast<std::size_t>(rank) < suspects_.size() &&
         suspects_[static_cast<std::size_t>(rank)].load(std::memory_order_relaxed);
}

duration world_members::silence_of(rank_t rank) const noexcept {
  if (rank < 0 || rank >= view_.size() || rank == core_.options().rank)
    return duration::zero();
  MW_ASSERT(links_.size() == view_.members.size(), "a formed world has a link by rank");
  const auto& l = links_[static_cast<std::size_t>(rank)];
  return l ? core_.runtime().service().now() - l->last_heard() : duration::zero();
}

// --- the service reactor

void world_members::take_formed(const world_view& view, std::vector<link_hold> links,
                                const std::vector<data_channel>& channels) {
  const rank_t self = core_.options().rank;
  MW_ASSERT(view_.members.empty() && core_.epoch() == 0, "a world is formed once");
  MW_ASSERT(view.size() == core_.options().size && links.size() == view.members.size() &&
                channels.size() == links.size(),
            "a formation has a member, a link and a channel by rank");
  MW_ASSERT(view.member(self).id == core_.runtime().self().id,
            "this process has its rank in the view");
  view_ = view;
  for (link_hold& hold : links) {
    MW_ASSERT(hold || links_.size() == static_cast<std::size_t>(self),
              "a formed world has a link to each other member");
    links_.push_back(hold.get());
    holds_.push_back(std::move(hold));
  }
  for (const data_channel& c : channels) over_memory_.push_back(c.has_slot());
  has_left_.resize(view_.members.size());
  left_.resize(view_.members.size());
}

void world_members::break_for_the_dead() noexcept {
  for (const auto& l : links_) {
    if (l && !l->is_up()) link_lost(*l, cause::peer_died, "died while forming");
  }
}

time_point world_members::examine_silence(time_point now) noexcept {
  MW_ASSERT(core_.runtime().service().is_current(),
            "silence is judged on the service reactor");
  const world_options& options = core_.options();
  time_point due = time_point::max();
  for (rank_t r = 0; r < static_cast<rank_t>(links_.size()); ++r) {
    if (r == options.rank || has_left(r)) continue;
    const duration silence = now - links_[static_cast<std::size_t>(r)]->last_heard();
    auto& suspect = suspects_[static_cast<std::size_t>(r)];
    const bool is_now = silence >= options.suspect_after;
    if (suspect.exchange(is_now, std::memory_order_relaxed) != is_now)
      note_suspicion(r, silence, is_now);
    if (silence >= options.broken_after) {
      core_.break_with(
          core_.describe_failure(cause::silent_peer, r, operation_kind::none, {}));
    }
    // Each next look may find that a suspect was heard again, or break the world.
    const duration heard_ago = std::max(silence, duration::zero());
    due = std::min(due, is_now ? now : later(now, options.suspect_after - heard_ago));
  }
  return due;
}

void world_members::note_suspicion(rank_t rank, duration silence,
                                   bool is_suspect) noexcept {
  if (is_suspect) core_.tally().note_suspicion();
  core_.life().tell_of_silence(rank, is_suspect);
  core_.runtime().log(
      is_suspect ? log_level::warning : log_level::info,
      fmt::format("{}@{}: rank {} (pid {}) {}", core_.options().name.view(),
                  core_.epoch(), rank, view_.member(rank).identity.pid,
                  is_suspect ? "is suspect: not heard of for " + duration_text(silence)
                             : "is heard again"));
}

void world_members::link_lost(const link& l, enum cause why,
                              const std::string& detail) noexcept {
  // A member that has left may end before the work that tells of it has its turn here.
  take_departures();
  for (rank_t r = 0; r < static_cast<rank_t>(links_.size()); ++r) {
    if (links_[static_cast<std::size_t>(r)].get() != &l || has_left(r)) continue;
    core_.break_with(core_.describe_failure(why, r, operation_kind::none, detail));
  }
}

bool world_members::has_left(rank_t rank) const noexcept {
  MW_ASSERT(rank >= 0 && static_cast<std::size_t>(rank) < has_left_.size(),
            "a formed world knows of each rank whether it has left");
  return has_left_[static_cast<std::size_t>(rank)];
}

void world_members::tell_of(const failure& broken_by, rank_t reporter) {
  MW_ASSERT(core_.runtime().service().is_current(),
            "members are told on the service reactor");
  broken_message message;
  message.world_id = view_.id;
  message.why = broken_by.cause;
  message.culprit = broken_by.rank;
  message.detail = broken_by.detail;
  for (rank_t r = 0; r < static_cast<rank_t>(holds_.size()); ++r) {
    const link_hold& l = holds_[static_cast<std::size_t>(r)];
    // All but the member that told us. Also the culprit: if it was only silent it must
    // learn that it is out.
    if (r != core_.options().rank && r != reporter && l && l->is_up())
      l->send(encode(message));
  }
  let_go();
}

void world_members::take_news() noexcept {
  std::vector<std::pair<rank_t, int>> ended;
  {
    const std::lock_guard lock(news_mutex_);
    MW_ASSERT(is_news_queued_, "news are taken by the work that was queued");
    ended.swap(ended_connections_);
    is_news_queued_ = false;
  }
  take_departures();
  for (const auto& [r, error] : ended)
    core_.runtime().peers().spawn(judge(core_.shared_from_this(), r, error));
}

void world_members::take_departures() noexcept {
  std::vector<rank_t> departed;
  {
    const std::lock_guard lock(news_mutex_);
    departed.swap(departed_);
  }
  for (const rank_t r : departed) {
    MW_ASSERT(static_cast<std::size_t>(r) < has_left_.size(), "a member has a rank");
    has_left_[static_cast<std::size_t>(r)] = true;
    suspects_[static_cast<std::size_t>(r)].store(false, std::memory_order_relaxed);
  }
}

task<void> world_members::judge(std::shared_ptr<world_core> core, rank_t rank,
                                int error) {
  const world_members& self = core->members();
  // Usually the cause has come by then, and nothing needs to be asked.
  co_await sleep_for(judgement_pause);
  if (core->state() == world_state::broken || self.has_left(rank)) co_return;
  // A peer that breaks a world says why on its link before it closes a connection of
  // that world, and one that dies loses its link too. The two connections are not
  // ordered. So the peer is asked: what it said before comes before its answer.
  const std::shared_ptr<link> control = self.links_[static_cast<std::size_t>(rank)];
  try {
    co_await within(control->all_heard(), core->options().broken_after);
  } catch (const timed_out&) {
    // It lives and does not answer: no better cause is known.
  }
  if (self.has_left(rank)) co_return;
  core->break_with(core->describe_failure(
      cause::connection_lost, rank, operation_kind::none,
      error ? std::strerror(error) : "the peer closed its data connection"));
}

// --- the reactor of the world

bool world_members::is_blocked(rank_t rank) const noexcept {
  if (rank < 0 || rank >= view_.size() || rank == core_.options().rank) return false;
  runtime_core& rt = core_.runtime();
  const link& l = *links_[static_cast<std::size_t>(rank)];
  return rt.user().now() - l.peer_progressed() > 2 * rt.options().heartbeat;
}

void world_members::note_heard(rank_t rank) noexcept {
  MW_ASSERT(
      static_cast<std::size_t>(rank) < links_.size() && rank != core_.options().rank,
      "bytes come from another member");
  links_[static_cast<std::size_t>(rank)]->note_heard(core_.runtime().user().now());
}

bool world_members::note_departure(rank_t rank) noexcept {
  const rank_t self = core_.options().rank;
  MW_ASSERT(rank >= 0 && rank < view_.size() && rank != self,
            "a backend tells of another member");
  left_[static_cast<std::size_t>(rank)] = true;
  tell_service_of(rank, std::nullopt);
  for (rank_t r = 0; r < view_.size(); ++r) {
    if (r != self && !left_[static_cast<std::size_t>(r)]) return false;
  }
  return true;
}

void world_members::note_connection_end(rank_t rank, int error) noexcept {
  tell_service_of(rank, error);
}

void world_members::tell_service_of(rank_t rank,
                                    std::optional<int> connection_error) noexcept {
  {
    const std::lock_guard lock(news_mutex_);
    if (connection_error) {
      ended_connections_.emplace_back(rank, *connection_error);
    } else {
      departed_.push_back(rank);
    }
    if (std::exchange(is_news_queued_, true)) return;
  }
  core_.on_service(news_);
}

}  // namespace manyworlds::inline v0::detail
