#include "io/reactor.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "io/current_reactor.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr int last_turns = 100'000;
/// How long the engine is not asked while pollers find something: to ask epoll takes
/// 300 ns, longer than a message in shared memory is under way.
constexpr duration engine_pause = std::chrono::microseconds(4);
constexpr unsigned most_turns_without_engine = 32;
/// After a turn this long each poller is looked at: what came to a link that rested waits
/// for two such turns at most (laws 2 and 9). Yields do not count: where members take
/// turns on a CPU it may wait for eight of those, or until this one would sleep.
constexpr duration long_turn = std::chrono::microseconds(40);

}  // namespace

reactor* current_reactor() noexcept {
  executor* const here = executor::current();
  return here ? here->as_reactor() : nullptr;
}

reactor::reactor(std::unique_ptr<class engine> engine, reactor_options options)
    : engine_(std::move(engine)), options_(options), recently_(engine_->now()) {
  meter_.begin(recently_);
}

// A poster may still be about to wake the engine although its work has already run.
reactor::~reactor() { await_posters(); }

void reactor::await_posters() const noexcept {
  // The posters are counted already, so this lasts no longer than one system call each.
  // Acquire: pairs with the release in `post` and `wake`; the engine is not touched after
  // that. Sequentially consistent for `try_post`, see there.
  while (posting_.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
}

void reactor::post(work& w) noexcept {
  // The count comes before the push: the thread that takes the work by that push's
  // release sees the count as well.
  posting_.fetch_add(1, std::memory_order_relaxed);
  if (inbox_.push(w)) engine_->wake();
  posting_.fetch_sub(1, std::memory_order_release);
}

bool reactor::try_post(work& w) noexcept {
  // We count, then ask; `close` sets the flag, then looks at the count. In the one order
  // of these four either we see that it is closed, or `close` waits for our push.
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
  // The number is bounded: work that makes itself ready without end must not hold it up.
  for (int turns = 0; turns < last_turns; ++turns) {
    ready_.append(next_turn_);
    at_once_ = 0;
    meter_.begin(now());
    if (!inbox_.take(ready_) && ready_.empty()) return;
    run_ready();
  }
}

void reactor::release() noexcept {
  turn_scope here(*this);
  cancel_sleep();
  engine_->release();
  thread_.store(0, std::memory_order_relaxed);
}

void reactor::wake() noexcept {
  posting_.fetch_add(1, std::memory_order_relaxed);
  engine_->wake();
  posting_.fetch_sub(1, std::memory_order_release);
}

bool reactor::turn() noexcept {
  const bool did = take_turn();
  // What the caller does next belongs to no turn.
  end_turn();
  return did;
}

void reactor::end_turn() noexcept {
  if (meter_.has_open_turn()) meter_.begin(now());
}

bool reactor::take_turn() noexcept {
  turn_scope here(*this);
  cancel_sleep();
  at_once_ = 0;
  recently_ = now();
  meter_.begin(recently_);
  if (recently_ - std::exchange(turned_at_, recently_) >= long_turn) {
    pollers_.look_at_all_next();
  }
  bool did = take_work();
  meter_.leave_tasks([this] { return now(); });
  did |= poll_engine();
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

bool reactor::poll_engine() noexcept {
  // The turns are counted as well, for a clock that stands still.
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

// A turn without its most costly parts: the clock, and the engine, which may enter the
// kernel.
bool reactor::take_brief_turn() noexcept {
  turn_scope here(*this);
  at_once_ = 0;
  bool did = poll_pollers();
  // What the pollers have made ready runs at once.
  did |= take_work();
  if (did) {
    meter_.note_anything();
    count_turn();
  }
  return did;
}

// Only this thread writes the counter.
void reactor::count_turn() noexcept {
  turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
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
  const bool did = pollers_.look([this](work_kind looks) {
    // A brief look is noted later: a task may wait for what it brought.
    if (looks != work_kind::brief) note_step(looks);
    return is_turn_used_up();
  });
  pollers_found_ |= did;
  return did;
}

}  // namespace manyworlds::inline v0::detail
