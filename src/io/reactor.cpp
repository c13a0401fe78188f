#include "manyworlds/io/reactor.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace manyworlds::inline v0 {

namespace {

constexpr int last_turns = 100'000;
/// How long the engine waits while pollers find something: epoll takes 300 ns to ask,
/// more than a message in shared memory is under way.
constexpr duration engine_pause = std::chrono::microseconds(4);
constexpr unsigned most_turns_without_engine = 32;

/// A yield that takes so long has given the CPU to others that soon yielded too: members
/// that wait for one another. After some of these a wait begins with a yield.
constexpr duration shortest_switch = std::chrono::microseconds(2);
constexpr unsigned crowd = 8;
/// One that takes even longer, to somebody who computes.
constexpr duration longest_switch = std::chrono::milliseconds(1);
constexpr duration without_yields = std::chrono::milliseconds(50);
/// A spin in turns with others lasts so many times as long at most.
constexpr int most_stretched = 20;

void pause_cpu() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

reactor::reactor(std::unique_ptr<class engine> engine, reactor_options options)
    : engine_(std::move(engine)), options_(options), recently_(engine_->now()) {
  meter_.begin(recently_);
}

// A poster whose work has already run may not yet have woken the engine it is about to.
reactor::~reactor() { await_posters(); }

void reactor::await_posters() const noexcept {
  // They are past their count, so this lasts no longer than one system call of theirs.
  // Acquire: pairs with the release in `post` and `wake`; the engine is not touched after
  // that. Sequentially consistent for `try_post`, see there.
  while (posting_.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
}

void reactor::post(work& w) noexcept {
  // Counted before the push: who takes the work by that push's release sees the count as
  // well.
  posting_.fetch_add(1, std::memory_order_relaxed);
  if (inbox_.push(w)) engine_->wake();
  posting_.fetch_sub(1, std::memory_order_release);
}

bool reactor::try_post(work& w) noexcept {
  // Counted, then asked; `close` says it, then looks at the count. In the one order of
  // these four either we see that it is closed, or `close` waits for our push.
  posting_.fetch_add(1, std::memory_order_seq_cst);
  const bool takes = !closed_.load(std::memory_order_seq_cst);
  if (takes && inbox_.push(w)) engine_->wake();
  posting_.fetch_sub(1, std::memory_order_release);
  return takes;
}

void reactor::close() noexcept {
  closed_.store(true, std::memory_order_seq_cst);
  await_posters();
  turn_scope here(*this);
  // Bounded: what makes itself ready for ever must not hold up the end.
  for (int turns = 0; turns < last_turns; ++turns) {
    ready_.append(next_turn_);
    if (!inbox_.take(ready_) && ready_.empty()) return;
    run_ready();
  }
}

void reactor::wake() noexcept {
  posting_.fetch_add(1, std::memory_order_relaxed);
  engine_->wake();
  posting_.fetch_sub(1, std::memory_order_release);
}

void reactor::add(poller& p) noexcept {
  p.previous_ = nullptr;
  p.next_ = pollers_;
  if (pollers_) pollers_->previous_ = &p;
  pollers_ = &p;
}

void reactor::remove(poller& p) noexcept {
  if (next_poller_ == &p) next_poller_ = p.next_;
  if (first_poller_ == &p) first_poller_ = p.next_;
  (p.previous_ ? p.previous_->next_ : pollers_) = p.next_;
  if (p.next_) p.next_->previous_ = p.previous_;
  p.next_ = p.previous_ = nullptr;
  p.asked_ = false;
}

bool reactor::turn() noexcept {
  const bool did = take_turn();
  // What the caller does next is nobody's turn.
  end_turn();
  return did;
}

void reactor::end_turn() noexcept {
  if (meter_.has_open_turn()) meter_.begin(now());
}

bool reactor::take_turn() noexcept {
  turn_scope here(*this);
  cancel_sleep();
  recently_ = now();
  meter_.begin(recently_);
  bool did = take_work();
  meter_.leave_tasks([this] { return now(); });
  did |= ask_engine();
  if (poll_pollers()) {
    meter_.note_anything();
    did = true;
  }
  did |= expire_timers();
  if (!next_turn_.empty()) {
    ready_.append(next_turn_);
    did = true;
  }
  if (did) count_turn();
  return did;
}

bool reactor::take_work() noexcept {
  const bool posted = inbox_.take(ready_);
  return run_ready() || posted;
}

bool reactor::ask_engine() noexcept {
  // Counted as well, for where the clock stands still.
  if (pollers_found_ && recently_ - engine_asked_ < engine_pause &&
      ++turns_without_engine_ < most_turns_without_engine) {
    return false;
  }
  pollers_found_ = false;
  turns_without_engine_ = 0;
  engine_asked_ = recently_;
  if (!engine_->poll()) return false;
  note_step(work_kind::library);
  return true;
}

bool reactor::expire_timers() noexcept {
  if (timers().empty() || timers().expire(recently_, turn_limit) == 0) return false;
  note_step(work_kind::library);
  return true;
}

void reactor::note_step(work_kind whose) noexcept {
  meter_.enter(whose, [this] { return now(); });
}

// A turn without what costs most of it: the clock, and the engine, which may enter the
// kernel.
bool reactor::glance() noexcept {
  turn_scope here(*this);
  bool did = poll_pollers();
  // What the pollers have made ready is run at once.
  did |= take_work();
  if (did) {
    meter_.note_anything();
    count_turn();
  }
  return did;
}

// Only this thread writes it.
void reactor::count_turn() noexcept {
  turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void reactor::rest() noexcept {
  if (spin()) return;
  std::optional<time_point> until;
  if (prepare_sleep(until)) {
    parked_.store(true, std::memory_order_relaxed);
    engine_->wait(until);
    parked_.store(false, std::memory_order_relaxed);
  }
  turn_scope here(*this);
  cancel_sleep();
}

std::optional<duration> reactor::prepare_wait() noexcept {
  std::optional<time_point> until;
  // The engine is asked last: pollers may submit requests as they arm. It clears old
  // notices then, which is safe because it tells us if there were any.
  if (!prepare_sleep(until) || engine_->prepare_foreign_wait()) return duration::zero();
  if (!until) return std::nullopt;
  return std::max(*until - now(), duration::zero());
}

std::optional<time_point> reactor::next_due() noexcept {
  inbox_.take(ready_);
  if (!ready_.empty() || !next_turn_.empty()) return now();
  return timers().next();
}

bool reactor::run_ready() noexcept {
  std::size_t count = 0;
  while (count < turn_limit) {
    work* w = ready_.pop();
    if (!w) break;
    ++count;
    const work_kind kind = w->kind();
    note_step(kind);
    w->run();
    if (kind == work_kind::library && is_turn_used_up()) break;
  }
  return count > 0;
}

bool reactor::poll_pollers() noexcept {
  bool did = false;
  poller* const first = std::exchange(first_poller_, nullptr);
  for (poller* p = first ? first : pollers_; p; p = next_poller_) {
    // A poller may remove itself, or any other, as it is polled.
    next_poller_ = p->next_;
    if (!p->poll()) continue;
    did = true;
    // What is brief is noted later: a task may wait for what it brought.
    if (p->looks_ != work_kind::brief) note_step(p->looks_);
    if (is_turn_used_up()) {
      first_poller_ = next_poller_;
      break;
    }
  }
  pollers_found_ |= did;
  return did;
}

// Something in shared memory is found 8 to 10 ns after it came if nothing but the pollers
// is asked, with the clock (25 ns) and the engine (epoll: 300 ns) 40 to 350.
bool reactor::spin() noexcept {
  if (options_.spin <= duration::zero()) return false;
  const time_point last = recently_ + options_.spin * most_stretched;
  const bool keeps_cpu = recently_ < yields_from_;
  time_point end = recently_ + (keeps_cpu ? options_.spin / 5 : options_.spin);
  const bool is_crowded = switches_ >= crowd;
  if (switches_ > 0) --switches_;
  const unsigned looks = is_crowded ? 1 : looks_between_turns;
  unsigned empty_turns = is_crowded ? turns_before_yields : 0;
  do {
    if (pollers_) {
      for (unsigned look = 0; look < looks; ++look) {
        if (glance()) return true;
      }
    }
    // Just before a turn looks at the clock: what others do meanwhile is nobody's turn.
    if (++empty_turns < turns_before_yields || keeps_cpu) {
      pause_cpu();
    } else {
      end = std::min(end + yield(), last);
    }
    if (take_turn()) return true;
  } while (recently_ < end);
  return false;
}

// Whom we wait for may be ready to run on this very CPU, and would otherwise get it at
// the next tick, milliseconds from now. If nobody is, it costs 0.2 us. What such others
// had of the CPU is not time in which we have looked: whoever falls asleep meanwhile
// costs them a wake-up, 20 times as much as a switch.
//
// Who computes keeps the CPU for milliseconds, whatever his share, if it is given to him.
// Unless those we wait for are here too, we rather keep it and soon sleep, since who
// wakes up gets it at once.
duration reactor::yield() noexcept {
  std::this_thread::yield();
  const time_point back = now();
  const duration took = back - recently_;
  if (took < shortest_switch) return duration::zero();
  if (took < longest_switch) {
    switches_ = std::min(switches_ + 4, 2 * crowd);
  } else if (switches_ == 0) {
    yields_from_ = back + without_yields;
  }
  return took;
}

// No wake-up is lost, because everybody who could give us something to do either comes
// before our last look at it or finds the announcement:
// - Work is pushed by replacing the top of the inbox, and the announcement is such a
//   replacement too. One of the two is first: either the announcement fails and we do not
//   sleep, or the poster sees it and wakes the engine.
// - A poller arms its wake-up and looks again, in that order.
// - A wake-up that comes before the engine sleeps is kept by the engine and ends its next
//   wait.
// - Ready work and timers change on this thread only; they are looked at last, since
//   pollers may have added to them.
bool reactor::prepare_sleep(std::optional<time_point>& until) noexcept {
  turn_scope here(*this);
  sleep_prepared_ = true;
  bool may_sleep = inbox_.announce_sleep();
  std::optional<duration> limit;
  for (poller* p = pollers_; p && may_sleep; p = next_poller_) {
    next_poller_ = p->next_;
    p->asked_ = true;
    may_sleep = p->prepare_sleep(limit);
  }
  if (!may_sleep || !ready_.empty() || !next_turn_.empty()) {
    cancel_sleep();
    return false;
  }
  until = timers().next();
  if (limit) {
    const time_point limited = later(now(), *limit);
    until = until ? std::min(*until, limited) : limited;
  }
  return true;
}

// The announcement in the inbox stays until posted work is next taken; a poster that
// finds it before gives a wake-up that nobody needs, and no more.
void reactor::cancel_sleep() noexcept {
  if (!std::exchange(sleep_prepared_, false)) return;
  for (poller* p = pollers_; p; p = next_poller_) {
    next_poller_ = p->next_;
    if (std::exchange(p->asked_, false)) p->cancel_sleep();
  }
}

}  // namespace manyworlds::inline v0
