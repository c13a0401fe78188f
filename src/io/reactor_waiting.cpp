// How a reactor waits: it spins, gives its CPU to other threads, and sleeps.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "io/reactor.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// The shortest time of a yield that has given the CPU to threads that soon yielded too:
/// members that wait for one another. After some of these a wait begins with a yield.
///
/// Measured: a system call takes 0.07 us, a yield that no thread uses 0.2, a switch there
/// and back 0.7 with nothing in between. In a sandbox such as gVisor each call takes
/// microseconds.
duration shortest_switch() noexcept {
  const auto fastest = [](auto call) {
    duration found = duration::max();
    for (int i = 0; i < 8; ++i) {
      const auto before = std::chrono::steady_clock::now();
      call();
      found = std::min<duration>(found, std::chrono::steady_clock::now() - before);
    }
    return found;
  };
  static const duration limit =
      std::max(3 * fastest([] { (void)::getppid(); }) + std::chrono::nanoseconds(400),
               fastest(std::this_thread::yield) + std::chrono::nanoseconds(300));
  return limit;
}
constexpr unsigned crowd = 8;
/// A yield that takes even longer has given the CPU to a thread that computes: it keeps
/// it until the kernel's next tick, 1 to 4 ms. Members that sleep and are woken in place
/// of switching take up to 125 us each. With 1 ms for any number, 32 members on two CPUs,
/// of which each then took the others for such threads, went on like that: a barrier took
/// 1.4 ms in place of 0.3.
duration longest_switch(unsigned peers_here) noexcept {
  static const auto cpus =
      static_cast<unsigned>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  return std::clamp<duration>((1 + peers_here) / cpus * std::chrono::microseconds(125),
                              std::chrono::milliseconds(1), std::chrono::milliseconds(2));
}
/// How long not to yield after such a yield. Members that start up beside us compute
/// for a moment, other programs without end. With 50 ms after each such yield, of four
/// members on two CPUs, two runs in five began with sleeps instead of switches. They
/// went on like that for hundreds of milliseconds.
constexpr duration shortest_without_yields = std::chrono::milliseconds(5);
constexpr duration longest_without_yields = std::chrono::milliseconds(50);
constexpr duration memory_of_yields = std::chrono::seconds(1);
/// The most that the time of other threads prolongs a spin by.
constexpr duration longest_stretch = std::chrono::milliseconds(1);
/// How long to spin on a CPU that is not yielded to a thread that computes there.
constexpr duration selfish_spin = std::chrono::microseconds(10);
/// How long a message that has not come in time is no longer waited for attentively: who
/// sends it may need this very CPU, which a spin keeps from it.
constexpr duration inattention = std::chrono::milliseconds(10);

void pause_cpu() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void reactor::wait() noexcept {
  // What the caller did until now, and what it does next, belongs to no turn.
  recently_ = now();
  meter_.begin(recently_);
  wait_between_turns();
  end_turn();
}

void reactor::wait_between_turns() noexcept {
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
  // notices then, which is safe because it reports if there were any.
  if (!prepare_sleep(until) || engine_->prepare_foreign_wait()) return duration::zero();
  if (!until) return std::nullopt;
  return std::max(*until - now(), duration::zero());
}

duration reactor::spin_length() const noexcept {
  const duration awake = awake_until_ - recently_;
  if (options_.spin > duration::zero()) return std::max(options_.spin, awake);
  if (awake > duration::zero()) return awake;
  if (recently_ < std::max(attentive_from_, yields_from_)) return duration::zero();
  return std::max(attentive_until_ - recently_, duration::zero());
}

// Something in shared memory is found 8 to 10 ns after it came if only the pollers are
// asked, and 40 to 350 ns with the clock (25 ns) and the engine (epoll: 300 ns). On a
// link that has rested it is found some looks later (`poller_list`).
bool reactor::spin() noexcept {
  const duration length = spin_length();
  if (length <= duration::zero()) return false;
  if (thread_.load(std::memory_order_relaxed) == 0) [[unlikely]] {
    thread_.store(::gettid(), std::memory_order_relaxed);
  }
  if (spin_is_held_.load(std::memory_order_relaxed)) return false;
  time_point end = later(
      recently_, recently_ < yields_from_ ? std::min(length, selfish_spin) : length);
  const time_point last = later(end, longest_stretch);
  const bool is_crowded = switches_ >= crowd;
  if (switches_ > 0) --switches_;
  const unsigned polls = is_crowded ? 0 : polls_between_turns;
  unsigned empty_turns = is_crowded ? turns_before_yields : 0;
  do {
    if (!pollers_.empty()) {
      for (unsigned poll = 0; poll < polls; ++poll) {
        if (take_brief_turn()) return true;
      }
    }
    // The yield comes just before a turn looks at the clock, so its time belongs to no
    // turn.
    if (++empty_turns < turns_before_yields || recently_ < yields_from_) {
      pause_cpu();
    } else {
      end = std::min(later(end, yield()), last);
    }
    if (take_turn()) return true;
  } while (recently_ < end);
  attentive_from_ = later(recently_, inattention);
  return false;
}

cpu_binding reactor::binding() const noexcept {
  const int thread = thread_.load(std::memory_order_relaxed);
  // A simulation turns its reactors itself, and its result must not depend on where it
  // runs.
  return thread == 0 ? cpu_binding::to_several() : cpu_binding::of_thread(thread);
}

// The peer that we wait for may be ready to run on this very CPU, and would otherwise get
// it at the next tick, milliseconds from now. If none is, the yield costs 0.2 us. The
// time that peers had the CPU is not time in which we have looked: falling asleep
// meanwhile would cost them a wake-up, 20 times as much as a switch.
//
// A thread that computes keeps a CPU that it is given for milliseconds, no matter what
// its share is. Unless our peers are here too, we rather keep the CPU and soon sleep,
// since a thread that wakes up gets it at once.
duration reactor::yield() noexcept {
  const time_point before = now();
  std::this_thread::yield();
  const time_point back = now();
  const duration took = back - before;
  // What others did meanwhile was no turn of this reactor.
  turned_at_ = later(turned_at_, took);
  if (took < shortest_switch()) return duration::zero();
  if (took < longest_switch(peers_here_.load(std::memory_order_relaxed))) {
    switches_ = std::min(switches_ + 4, 2 * crowd);
    return took;
  }
  // One such yield happens among members as well; several in a row do not.
  switches_ -= std::min(switches_, crowd);
  if (switches_ == 0) {
    without_yields_ = back - yields_from_ < memory_of_yields
                          ? std::clamp(2 * without_yields_, shortest_without_yields,
                                       longest_without_yields)
                          : shortest_without_yields;
    yields_from_ = back + without_yields_;
  }
  return duration::zero();
}

// No wake-up is lost, because everything that could give us something to do either comes
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
  std::optional<duration> limit;
  const bool may_sleep = inbox_.announce_sleep() && pollers_.prepare_sleep(limit);
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

// The announcement in the inbox stays until posted work is next taken. A poster that
// finds it before gives an unnecessary wake-up, which does no harm.
void reactor::cancel_sleep() noexcept {
  if (!std::exchange(sleep_prepared_, false)) return;
  pollers_.cancel_sleep();
}

}  // namespace manyworlds::inline v0::detail
