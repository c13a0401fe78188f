#include "mpmd/role_workers.hpp"

#include <fmt/format.h>

#include <chrono>
#include <stdexcept>
#include <utility>

#include "duration_text.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/store/store_error.hpp"
#include "spmd/mesh_name.hpp"
#include "spmd/worker_invitation.hpp"

namespace manyworlds::inline v0::detail {

// What a worker does for the session ends by its alarm after a second; a process that has
// ended is missed by its agent sooner.
constexpr duration patience_after_recall = std::chrono::milliseconds(1500);
constexpr duration between_looks_at_post = std::chrono::seconds(1);

role_workers::role_workers(store& keys, std::string role, std::uint64_t controller,
                           const session_options& limits, lost_teller tell_lost)
    : keys_(&keys),
      role_(std::move(role)),
      controller_(controller),
      limits_(limits),
      tell_lost_(std::move(tell_lost)) {}

void role_workers::name_session(const std::string& name, int workers) {
  session_ = name;
  count_ = workers;
  for (int worker = 0; worker < workers; ++worker) {
    const instance_id of{role_, static_cast<std::uint32_t>(worker) + 1};
    seats_[worker] = std::make_unique<seat>(keys_, of);
  }
}

task<void> role_workers::start(int worker, std::uint64_t incarnation) {
  seat& own = seat_of(worker);
  own.session_incarnation = incarnation;
  // The worker has a runtime and a store, and knows its number on its host.
  const worker_invitation invitation{
      {session_, worker, count_, incarnation, limits_, 0}, "-", "-"};
  try {
    co_await within(invite_next(own, invitation.text()), limits_.start);
  } catch (const timed_out&) {
    throw std::runtime_error(fmt::format("no process of {} was free within {}",
                                         own.instance.text(),
                                         duration_text(limits_.start)));
  }
}

task<void> role_workers::invite_next(seat& own, std::string invitation) {
  auto invite = [&]() -> task<void> {
    for (;;) {
      own.process = co_await own.post.free_after(own.process.number);
      own.is_lost = false;
      const bool is_invited =
          co_await own.post.invite(own.process.number, controller_, invitation);
      if (!is_invited) continue;
      auto accepted = [&]() -> task<bool> {
        co_await own.post.accepted(own.process.number);
        co_return true;
      };
      // One that has died meanwhile has a successor.
      const auto [has_accepted, next] =
          co_await when_any(accepted(), own.post.free_after(own.process.number));
      if (has_accepted) co_return;
    }
  };
  co_await when_any(invite(), tell_of_silent(own));
}

/// Tells of a process that neither accepts nor leaves an earlier controller for as long
/// as a member may be silent. What is counted are answers of the store: while that is
/// away it cannot hear of anything (law G-c). A word may be lost with a master, so it is
/// said again.
task<void> role_workers::tell_of_silent(seat& own) {
  const auto most = limits_.lost_after / between_looks_at_post + 1;
  duration::rep looks = 0;
  for (std::uint64_t seen = 0;; co_await sleep_for(between_looks_at_post)) {
    const free_worker now = co_await own.post.last();
    looks = now.number == seen && seen == own.process.number ? looks + 1 : 0;
    seen = now.number;
    if (seen == 0 || looks == 0) continue;
    if (own.is_lost || looks > most) tell_lost(own, "it does not answer its controller");
  }
}

void role_workers::tell_lost(const seat& own, const char* why) const {
  tell_lost_(own.instance, own.process.incarnation, why);
}

/// Returns nothing where it cannot say more than the break of its world does.
task<std::string> role_workers::ended(int worker) {
  seat& own = seat_of(worker);
  std::string how;
  try {
    static_cast<void>(co_await own.post.free_after(own.process.number));
    const auto refusal =
        co_await keys_.try_get(refusal_key(session_, worker, own.session_incarnation));
    if (refusal) how = "its process has ended";
  } catch (const store_error&) {
    // How it ended is told without it.
  }
  co_return how;
}

/// With the session its workers are free again, or leave with its role.
task<void> role_workers::end(int worker, duration patience) {
  seat& own = seat_of(worker);
  const std::uint64_t number = own.process.number;
  if (patience > duration::zero() || number == 0) co_return;
  auto leave = [&]() -> task<void> {
    co_await own.post.recall(number);
    static_cast<void>(co_await own.post.free_after(number));
  };
  try {
    co_await within(leave(), patience_after_recall);
    co_return;
  } catch (const timed_out&) {
    // It stands still, or has ended and was not started again yet.
  } catch (const store_error&) {
    // It cannot be recalled: the master hears of it, by another way.
  }
  if (own.process.number != number) co_return;
  own.is_lost = true;
  tell_lost(own, "its session has lost it");
}

std::int64_t role_workers::pid(int worker) const noexcept {
  const auto at = seats_.find(worker);
  return at == seats_.end() ? 0 : at->second->process.pid;
}

}  // namespace manyworlds::inline v0::detail
