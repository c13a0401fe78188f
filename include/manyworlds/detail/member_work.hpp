// Member work: a work or a timer that calls a member function of its owner.
#pragma once

#include <memory>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/timer_queue.hpp"
#include "manyworlds/detail/work.hpp"

namespace manyworlds::inline v0::detail {

template <auto Function>
class member_work;

/// `member_work<&owner::arrived> arrived_{*this};`
template <class Owner, void (Owner::*Function)() noexcept>
class member_work<Function> final : public work {
 public:
  explicit member_work(Owner& of) noexcept
      : work([](work& w) noexcept { (static_cast<member_work&>(w).of_.*Function)(); }),
        of_(of) {}

 private:
  Owner& of_;
};

/// Work that keeps an object alive until it runs.
class keeping_work : public work {
 public:
  /// Called before it is queued.
  void keep(std::shared_ptr<void> alive) noexcept {
    MW_ASSERT(!kept_, "work that keeps an object is queued once at a time");
    kept_ = std::move(alive);
  }
  /// Called when it is not queued after all.
  void let_go() noexcept { kept_ = nullptr; }

 protected:
  using work::work;
  ~keeping_work() = default;
  std::shared_ptr<void> kept_;
};

template <auto Function>
class kept_member_work;

/// `kept_member_work<&owner::arrived> arrived_{*this};` for an owner that may be dropped
/// while it is queued.
template <class Owner, void (Owner::*Function)() noexcept>
class kept_member_work<Function> final : public keeping_work {
 public:
  explicit kept_member_work(Owner& of) noexcept
      : keeping_work([](work& w) noexcept {
          auto& self = static_cast<kept_member_work&>(w);
          const auto alive = std::move(self.kept_);
          (self.of_.*Function)();
        }),
        of_(of) {}

 private:
  Owner& of_;
};

template <auto Function>
class member_timer;

/// `member_timer<&owner::expired> timer_{*this};`
template <class Owner, void (Owner::*Function)() noexcept>
class member_timer<Function> final : public timer {
 public:
  explicit member_timer(Owner& of) noexcept
      : timer([](timer& t) noexcept { (static_cast<member_timer&>(t).of_.*Function)(); }),
        of_(of) {}

 private:
  Owner& of_;
};

}  // namespace manyworlds::inline v0::detail
