// result<T>: a value or a failure, for callers that branch on failing.
#pragma once

#include <optional>
#include <utility>

#include "manyworlds/failure.hpp"

namespace manyworlds::inline v0 {

/// The value of `co_await outcome(op)`: the operation's value, or the failure that it
/// would have thrown. It reads like std::expected, which libstdc++ 12 lacks in C++20.
///
///     const auto got = co_await mw::outcome(w.recv(x, mw::from{1}).within(1s));
///     if (got) {
///       use(got->bytes);
///     } else if (got.error().cause != mw::cause::timed_out) {
///       throw mw::world_error(got.error());
///     }
template <class T>
class [[nodiscard]] result {
 public:
  using value_type = T;

  result(T value) : value_(std::move(value)) {}
  result(failure f) : failure_(std::move(f)) {}

  /// Returns whether there is a value.
  [[nodiscard]] bool has_value() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return has_value(); }

  /// Precondition: there is a value.
  T& operator*() & noexcept { return *value_; }
  const T& operator*() const& noexcept { return *value_; }
  T&& operator*() && noexcept { return std::move(*value_); }
  /// Precondition: there is a value.
  T* operator->() noexcept { return &*value_; }
  const T* operator->() const noexcept { return &*value_; }

  /// Returns the value. Errors: world_error with the failure, if there is no value.
  T& value() & {
    if (!value_) throw world_error(failure_);
    return *value_;
  }
  T value() && {
    if (!value_) throw world_error(failure_);
    return std::move(*value_);
  }

  /// Returns what failed; a default-constructed failure if there is a value.
  [[nodiscard]] const failure& error() const noexcept { return failure_; }

 private:
  std::optional<T> value_;
  failure failure_;
};

template <>
class [[nodiscard]] result<void> {
 public:
  using value_type = void;

  result() = default;
  result(failure f) : failure_(std::move(f)) {}

  /// Returns whether nothing failed.
  [[nodiscard]] bool has_value() const noexcept { return !failure_; }
  explicit operator bool() const noexcept { return has_value(); }
  void operator*() const noexcept {}
  /// Returns if nothing failed. Errors: world_error with the failure.
  void value() const {
    if (failure_) throw world_error(failure_);
  }
  [[nodiscard]] const failure& error() const noexcept { return failure_; }

 private:
  failure failure_;
};

}  // namespace manyworlds::inline v0
