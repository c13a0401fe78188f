// Turn meter: measures a reactor's turns, and in each one the library's work and the
// tasks'.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "manyworlds/detail/observed.hpp"
#include "manyworlds/detail/work.hpp"
#include "manyworlds/observe/turn_times.hpp"

namespace manyworlds::inline v0::detail {

/// A turn lasts from one look at the clock to the next, which the reactor takes anyway.
/// Another look, which costs 25 ns, is taken only where tasks follow the library's work
/// or the other way round. None is taken if the work before was brief: a small message is
/// brought in 200 ns.
class turn_meter {
 public:
  /// Begins a turn and ends the one before.
  void begin(time_point now) noexcept {
    if (has_open_turn()) end(now);
    since_ = now;
    state_ = 0;
  }
  /// Says that `whose` work follows. `look` gives the time, if it is needed.
  template <class Look>
  void enter(work_kind whose, Look&& look) noexcept {
    if (whose == work_kind::tasks) {
      if ((state_ & (tasks_run | is_long)) == is_long) [[unlikely]]
        close_part(look());
      state_ = did_something | tasks_run | is_long;
    } else {
      leave_tasks(look);
      state_ |= whose == work_kind::brief ? did_something : did_something | is_long;
    }
  }
  /// Says that what follows is no longer the work of tasks.
  template <class Look>
  void leave_tasks(Look&& look) noexcept {
    if ((state_ & tasks_run) != 0) [[unlikely]]
      close_part(look());
  }
  void note_anything() noexcept { state_ |= did_something; }
  /// Says that what follows, or goes on, takes longer than is brief.
  void note_long() noexcept { state_ |= is_long; }
  /// Returns true if what is under way may be long.
  [[nodiscard]] bool is_at_something_long() const noexcept {
    return (state_ & is_long) != 0;
  }
  [[nodiscard]] bool is_at_tasks() const noexcept { return (state_ & tasks_run) != 0; }
  /// Returns the library's part of this turn so far. Precondition: the library runs now.
  [[nodiscard]] duration library_so_far(time_point now) const noexcept {
    return library_time_ + (now - since_);
  }
  [[nodiscard]] bool has_open_turn() const noexcept {
    return (state_ & did_something) != 0 || took_part_ != 0;
  }

  /// Returns the times so far. Thread: any.
  [[nodiscard]] turn_times read() const noexcept {
    return {library_.read(), tasks_.read()};
  }

 private:
  /// A histogram that the reactor's thread writes and any thread reads.
  class histogram {
   public:
    void add(duration d) noexcept {
      ++counts_[time_histogram::bucket_of(d)];
      if (d.count() > longest_) longest_ = d.count();
    }
    [[nodiscard]] time_histogram read() const noexcept {
      time_histogram h;
      for (std::size_t i = 0; i < h.counts.size(); ++i) h.counts[i] = counts_[i];
      h.longest = duration(longest_);
      return h;
    }

   private:
    std::array<observed<std::uint64_t>, time_histogram::buckets> counts_;
    observed<duration::rep> longest_{0};
  };

  // The bits of `state_`: what happened since `since_`.
  static constexpr unsigned did_something = 1;
  static constexpr unsigned tasks_run = 2;
  static constexpr unsigned is_long = 4;
  // The bits of `took_part_`: which times hold parts that are over.
  static constexpr unsigned library_took = 1;
  static constexpr unsigned tasks_took = 2;

  void end(time_point now) noexcept {
    if (took_part_ != 0) [[unlikely]]
      return end_of_many(now);
    ((state_ & tasks_run) != 0 ? tasks_ : library_).add(now - since_);
  }
  [[gnu::noinline]] void end_of_many(time_point now) noexcept {
    if ((state_ & did_something) != 0) close_part(now);
    if ((took_part_ & tasks_took) != 0) tasks_.add(std::exchange(tasks_time_, {}));
    if ((took_part_ & library_took) != 0) library_.add(std::exchange(library_time_, {}));
    took_part_ = 0;
  }
  [[gnu::noinline]] void close_part(time_point now) noexcept {
    const bool by_tasks = (state_ & tasks_run) != 0;
    (by_tasks ? tasks_time_ : library_time_) += now - since_;
    took_part_ |= by_tasks ? tasks_took : library_took;
    since_ = now;
    state_ = 0;
  }

  unsigned state_ = 0;
  unsigned took_part_ = 0;
  time_point since_;
  duration library_time_{0};
  duration tasks_time_{0};
  histogram library_;
  histogram tasks_;
};

}  // namespace manyworlds::inline v0::detail
