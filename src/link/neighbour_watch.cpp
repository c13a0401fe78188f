// Watch of a neighbour: its end is noticed, and its memory released.
#include <cerrno>

#include "link/neighbour.hpp"
#include "link/neighbourhood.hpp"
#include "link/shared_link.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

namespace {

constexpr const char* no_death_word =
    "is not read, since no robust futex tells of its death: its large messages are "
    "copied through shared memory, which is slower; usual cause: a sandbox that refuses "
    "set_robust_list";

/// Says whether the peer holds its word; it does so before we can see the arena, or
/// never. Only that word tells at no cost that a process with the peer's pid is the
/// peer (see remote_memory). Without it the receiver asks for payloads and does not
/// read them.
bool is_held_by_peer(shared_arena& arena) noexcept {
  const auto& word =
      *reinterpret_cast<const life_word*>(arena.at(offset::death(arena.peer_side())));
  return word.load(std::memory_order_acquire) != 0;
}

}  // namespace

void neighbour::share(shared_parts parts) {
  MW_ASSERT(!shared_ && !beats_ && parts.arena, "memory is shared once");
  MW_ASSERT(all_.owner().user(), "memory is shared only for a user reactor");
  std::string refusal;
  if (parts.memory && !is_held_by_peer(*parts.arena)) {
    // Another process could get the pid of a peer before we hear of its death.
    parts.memory.reset();
    refusal = no_death_word;
  } else if (!parts.memory && parts.memory_refusal != 0) {
    refusal = unreadable_text(parts.memory_refusal);
  }
  if (!refusal.empty()) {
    all_.remark_refusal(refusal, "the memory of " + link_.peer().text() + " " + refusal);
  }
  life_ = std::move(parts.life);
  std::unique_ptr<process_watch> process = std::move(parts.process);
  reactor& user = *all_.owner().user();
  shared_arena& arena = *parts.arena;
  const auto line = [&arena](int side) -> beat_line& {
    return *reinterpret_cast<beat_line*>(arena.at(offset::beat(side)));
  };
  beats_.emplace(line(arena.side()), line(arena.peer_side()));
  shared_ = std::make_shared<shared_link>(user, user.sockets(), std::move(parts),
                                          all_.pools(), all_.mover());
  slots_ = std::make_shared<slot_register>(shared_->side());
  watch(std::move(process));
}

bool neighbour::is_readable() const noexcept { return shared_ && shared_->reads_peer(); }

void neighbour::watch(std::unique_ptr<process_watch> process) {
  shared_arena& arena = shared_->arena();
  auto& word = *reinterpret_cast<life_word*>(arena.at(offset::death(arena.peer_side())));
  MW_ASSERT(death_ == death_notices::ticket::none, "a peer's word is watched once");
  death_ = all_.deaths().add(word, [this] {
    all_.owner().spawn(mourn(link_.shared_from_this(), "its death word"));
  });
  if (!process) return;
  if (process->is_watching()) {
    all_.owner().spawn(until_process_ends(link_.shared_from_this(), std::move(process)));
  } else {
    all_.owner().remark(log_level::debug, process->objection());
  }
}

task<void> neighbour::until_process_ends(std::shared_ptr<link> l,
                                         std::unique_ptr<process_watch> process) {
  co_await when_any(process->ended(l->on_host().all_.service()), l->over_.wait());
  if (!process->has_ended()) co_return;
  co_await mourn(std::move(l), "its process handle");
}

task<void> neighbour::mourn(std::shared_ptr<link> l, const char* noticed_by) {
  // The last messages of the peer, a goodbye or a BROKEN, may wait in our socket. They
  // are read first.
  co_await sleep_for(duration::zero());
  co_await sleep_for(duration::zero());
  // The first notice stands; a second one changes nothing.
  if (!l->is_up()) co_return;
  l->saw_death_ = true;
  l->peer_is_gone(noticed_by);
}

void neighbour::part() noexcept {
  settle();
  visitor_.reset();
  all_.deaths().remove(std::exchange(death_, death_notices::ticket::none));
  life_.reset();
  beats_.reset();
  shared_.reset();
}

}  // namespace manyworlds::inline v0::detail::shm
