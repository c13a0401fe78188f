// Poller list: what a reactor looks at in its turns, and how often.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/work.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// Something that must be looked at rather than waited for: rings in shared memory,
/// device events. The reactor looks at it in its turns, or in one of eight once it has
/// rested (poller_list), and asks it before it sleeps.
class poller {
 public:
  /// Looks once. Returns true if it made progress.
  virtual bool poll() noexcept = 0;
  /// Arms a wake-up (`reactor::wake`) and looks again. Returns true if the reactor may
  /// sleep. A poller that cannot wake the reactor sets `limit` to the longest time that
  /// it may sleep.
  virtual bool prepare_sleep(std::optional<duration>& limit) noexcept = 0;
  /// Called when the reactor woke up.
  virtual void cancel_sleep() noexcept = 0;

 protected:
  /// `brief` means that what a look finds mostly takes less than a look at the clock. The
  /// poller reports the exceptions (`reactor::note_long_step`).
  explicit poller(work_kind looks = work_kind::library) noexcept : looks_(looks) {}
  ~poller() = default;

 private:
  friend class poller_list;
  const work_kind looks_;
  bool asked_ = false;
  bool is_quiet_ = false;
  unsigned empty_looks_ = 0;
  poller* next_ = nullptr;
  poller* previous_ = nullptr;
};

/// The pollers of one reactor. Those that have found nothing for long are *quiet*: a look
/// takes an eighth of them in turn, since a process has a link to each peer on its host,
/// of which most rest. Where another process has just had the CPU, a look at such a link
/// takes up to 0.3 us (a barrier of 32 members on two CPUs: 300 us with all of them in
/// each look, 210 with an eighth). Who has not looked for long looks at all of them.
///
/// A poller may remove itself, or any other, while it is looked at or asked.
class poller_list {
 public:
  [[nodiscard]] bool empty() const noexcept { return !busy_ && !quiet_; }

  /// Precondition: it is in no list.
  void add(poller& p) noexcept {
    MW_ASSERT(!p.previous_ && !p.next_ && busy_ != &p && quiet_ != &p,
              "a poller is registered once");
    p.empty_looks_ = 0;
    push(p, false);
  }

  /// Precondition: it is in this list.
  void remove(poller& p) noexcept {
    if (current_ == &p) current_ = nullptr;
    if (next_ == &p) next_ = p.next_;
    if (first_ == &p) first_ = p.next_;
    take_out(p);
    p.asked_ = false;
  }

  /// Looks once. `is_enough(kind of looks)` is called for each poller that has found
  /// something and says whether the turn is used up; the next look goes on behind that
  /// poller (law 9). Returns whether anything was found, or some have not been looked at.
  template <class IsEnough>
  bool look(IsEnough&& is_enough) noexcept {
    bool did = false;
    if (quiet_) [[unlikely]] {
      // One that finds something is no longer quiet, so they hold up no others.
      if (look_at_quiet(is_enough, did)) return true;
    }
    poller* const first = std::exchange(first_, nullptr);
    for (poller* p = first ? first : busy_; p; p = next_) {
      next_ = p->next_;
      const work_kind looks = p->looks_;
      const bool found = look_at(*p);
      if (current_ && has_become_quiet(*p, found)) [[unlikely]]
        move(*p, true);
      if (!found) continue;
      did = true;
      if (!is_enough(looks)) continue;
      first_ = next_;
      break;
    }
    return did || first;
  }

  /// Asks each whether the reactor may sleep until one says no. Returns whether all have
  /// said yes.
  bool prepare_sleep(std::optional<duration>& limit) noexcept {
    const auto ask = [&limit](poller& p) {
      p.asked_ = true;
      return p.prepare_sleep(limit);
    };
    return each_of(busy_, ask) && each_of(quiet_, ask);
  }

  /// The next look takes all quiet ones, unless the last one has: of hundreds a look at
  /// all is a long turn itself, and must not lead to another.
  void look_at_all_next() noexcept { looks_at_all_ |= !has_looked_at_all_; }

  /// Tells those that have been asked that the reactor is awake. The next look takes all:
  /// a quiet one may have woken it, or kept it from sleeping.
  void cancel_sleep() noexcept {
    const auto tell = [](poller& p) {
      if (std::exchange(p.asked_, false)) p.cancel_sleep();
      return true;
    };
    each_of(busy_, tell);
    each_of(quiet_, tell);
    looks_at_all_ = true;
  }

 private:
  /// The looks without a find after which one is quiet. In a spin they take 20 to 40 us.
  static constexpr unsigned patience = 2000;
  /// The part of the quiet ones that a look takes.
  static constexpr unsigned looks_for_all = 8;

  bool look_at(poller& p) noexcept {
    current_ = &p;
    return p.poll();
  }
  static bool has_become_quiet(poller& p, bool found) noexcept {
    p.empty_looks_ = found ? 0 : p.empty_looks_ + 1;
    return p.empty_looks_ == patience;
  }

  /// Returns whether the turn is used up.
  template <class IsEnough>
  bool look_at_quiet(IsEnough& is_enough, bool& did) noexcept {
    const unsigned all = quiet_count_;
    unsigned looks = looks_at_all_ ? all : (all + looks_for_all - 1) / looks_for_all;
    for (; looks > 0 && quiet_; --looks) {
      poller& p = next_quiet_ ? *next_quiet_ : *quiet_;
      next_quiet_ = p.next_;
      const work_kind kind = p.looks_;
      if (!look_at(p)) continue;
      did = true;
      if (current_) {
        p.empty_looks_ = 0;
        move(p, false);
      }
      if (is_enough(kind)) return true;
    }
    has_looked_at_all_ = std::exchange(looks_at_all_, false);
    return false;
  }
  template <class Ask>
  bool each_of(poller* first, Ask& ask) noexcept {
    for (poller* p = first; p; p = next_) {
      next_ = p->next_;
      if (!ask(*p)) return false;
    }
    return true;
  }

  void push(poller& p, bool is_quiet) noexcept {
    poller*& front = is_quiet ? quiet_ : busy_;
    p.is_quiet_ = is_quiet;
    p.previous_ = nullptr;
    p.next_ = front;
    if (front) front->previous_ = &p;
    front = &p;
    quiet_count_ += is_quiet ? 1 : 0;
  }
  void take_out(poller& p) noexcept {
    poller*& front = p.is_quiet_ ? quiet_ : busy_;
    MW_ASSERT((p.previous_ ? p.previous_->next_ : front) == &p &&
                  (!p.next_ || p.next_->previous_ == &p),
              "a poller is removed from the reactor that it is registered with");
    if (next_quiet_ == &p) next_quiet_ = p.next_;
    (p.previous_ ? p.previous_->next_ : front) = p.next_;
    if (p.next_) p.next_->previous_ = p.previous_;
    p.next_ = p.previous_ = nullptr;
    quiet_count_ -= p.is_quiet_ ? 1 : 0;
  }
  void move(poller& p, bool is_quiet) noexcept {
    take_out(p);
    push(p, is_quiet);
  }

  poller* busy_ = nullptr;
  poller* quiet_ = nullptr;
  unsigned quiet_count_ = 0;
  bool looks_at_all_ = false;       ///< in the next look, or in those that go on with it
  bool has_looked_at_all_ = false;  ///< in the last one that was not cut short
  poller* next_ = nullptr;          ///< to look at, or to ask
  poller* next_quiet_ = nullptr;    ///< to look at; null: the first
  poller* first_ = nullptr;         ///< to look at first: the look before was cut short
  poller* current_ = nullptr;       ///< is looked at, and has not been removed
};

}  // namespace manyworlds::inline v0::detail
