// Value slot: the place of a result, which is a value, a reference or nothing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// Holds what an operation gave until its waiter takes it. A reference stays a reference.
template <class T>
class value_slot {
 public:
  template <class U>
  void emplace(U&& value) {
    value_.emplace(std::forward<U>(value));
  }
  [[nodiscard]] bool has_value() const noexcept { return value_.has_value(); }
  T take() {
    MW_ASSERT(has_value(), "a result is there before it is taken");
    return std::move(*value_);
  }

 private:
  std::optional<T> value_;
};

template <class T>
requires std::is_reference_v<T>
class value_slot<T> {
 public:
  void emplace(T value) noexcept { value_ = std::addressof(value); }
  [[nodiscard]] bool has_value() const noexcept { return value_ != nullptr; }
  T take() noexcept {
    MW_ASSERT(has_value(), "a result is there before it is taken");
    return static_cast<T>(*value_);
  }

 private:
  std::remove_reference_t<T>* value_ = nullptr;
};

template <>
class value_slot<void> {
 public:
  void emplace() noexcept { has_value_ = true; }
  [[nodiscard]] bool has_value() const noexcept { return has_value_; }
  void take() const noexcept {}

 private:
  bool has_value_ = false;
};

/// The form of a result in a tuple or an optional: `std::monostate` for nothing, a
/// `std::reference_wrapper` for an lvalue reference.
template <class T>
using storable = std::conditional_t<
    std::is_void_v<T>, std::monostate,
    std::conditional_t<std::is_lvalue_reference_v<T>,
                       std::reference_wrapper<std::remove_reference_t<T>>,
                       std::remove_cvref_t<T>>>;

}  // namespace manyworlds::inline v0::detail
