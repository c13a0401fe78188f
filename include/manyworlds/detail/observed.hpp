// Observed: a number that one thread changes and any thread may read.
#pragma once

#include <atomic>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// A number with one writer, which pays no more than for a plain variable: nothing is
/// read and changed in one step. Readers get some recent value; it orders nothing.
template <class T>
class observed {
 public:
  constexpr observed() noexcept = default;
  constexpr observed(T value) noexcept : value_(value) {}
  observed(const observed&) = delete;
  observed& operator=(const observed&) = delete;

  operator T() const noexcept { return value_.load(std::memory_order_relaxed); }
  observed& operator=(T value) noexcept {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  observed& operator+=(T more) noexcept { return *this = static_cast<T>(*this + more); }
  observed& operator++() noexcept { return *this += T{1}; }

 private:
  std::atomic<T> value_{};
};

}  // namespace manyworlds::inline v0::detail
