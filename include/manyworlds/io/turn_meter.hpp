// Turn meter: tells a reactor's turns apart, and in each the library's work from that of
// tasks.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "manyworlds/coro/work.hpp"
#include "manyworlds/io/turn_times.hpp"
#include "manyworlds/observe/observed.hpp"

namespace manyworlds::inline v0 {

/// A turn is from one look at the clock to the next, which the reactor takes anyway. Only
/// where tasks follow on the library's work or the other way round another look is taken,
/// which costs 25 ns; and not if what came before was brief: a small message is brought
/// in 200.
class turn_meter {
 public:
  /// A turn begins, and the one before is over.
  void begin(time_point now) noexcept {
    if (did_ || took_part_ != 0) end(now);
    since_ = now;
    is_long_ = false;
  }
  /// What follows is `whose`. `look` gives the time, if it is needed.
  template <class Look>
  void enter(work_kind whose, Look&& look) noexcept {
    const bool by_tasks = whose == work_kind::tasks;
    if (by_tasks != by_tasks_) {
      if (is_long_) close_part(look());
      by_tasks_ = by_tasks;
    }
    did_ = true;
    is_long_ |= whose != work_kind::brief;
  }
  /// Tasks ran last: whatever follows is not theirs.
  template <class Look>
  void leave_tasks(Look&& look) noexcept {
    if (!by_tasks_) return;
    close_part(look());
    by_tasks_ = false;
  }
  /// What follows, or goes on, takes longer than is brief.
  void note_long() noexcept { is_long_ = true; }
  [[nodiscard]] bool has_open_turn() const noexcept { return did_ || took_part_ != 0; }

  /// Any thread.
  [[nodiscard]] turn_times read() const noexcept {
    return {library_.read(), tasks_.read()};
  }

 private:
  /// Written by the reactor's thread, read by any.
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

  static constexpr unsigned library_took = 1;
  static constexpr unsigned tasks_took = 2;

  void close_part(time_point now) noexcept {
    (by_tasks_ ? tasks_time_ : library_time_) += now - since_;
    took_part_ |= by_tasks_ ? tasks_took : library_took;
    since_ = now;
    did_ = is_long_ = false;
  }
  void end(time_point now) noexcept {
    if (did_) close_part(now);
    if ((took_part_ & tasks_took) != 0) tasks_.add(std::exchange(tasks_time_, {}));
    if ((took_part_ & library_took) != 0) library_.add(std::exchange(library_time_, {}));
    took_part_ = 0;
    by_tasks_ = false;
  }

  time_point since_;
  duration library_time_{0};
  duration tasks_time_{0};
  unsigned took_part_ = 0;
  // Of the part since then.
  bool by_tasks_ = false;
  bool did_ = false;
  bool is_long_ = false;
  histogram library_;
  histogram tasks_;
};

}  // namespace manyworlds::inline v0
