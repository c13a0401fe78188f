// Member work: a work or a timer that calls a member function of its owner.
#pragma once

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
