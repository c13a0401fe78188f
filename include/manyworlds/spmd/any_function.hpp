// Any function: a function of workers that is known only at run time, and what it is
// given.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "manyworlds/spmd/any_value.hpp"
#include "manyworlds/spmd/dref.hpp"
#include "manyworlds/spmd/remote_function.hpp"

namespace manyworlds::inline v0 {

/// Names a function of which only the workers know the types. A call of it takes any
/// number of values and drefs; the worker compares them with what the function takes.
///
///     const mw::any_function load("load", mw::alone);
///     mw::dref<mw::any_value> w = co_await tp.call(load, "a/b", 0).replayable();
///     const mw::any_value loss = co_await tp.call(mw::any_function("loss"), w).from(0);
///     const double number = loss.as<double>();
///
/// What it gives is a dref without a type, unless the call asks for the value. `alone`
/// need not be said of a function that was declared so, but of one that is to be
/// `replayable`; the workers refuse it for one that was not.
class any_function {
 public:
  /// Names it. Errors: std::invalid_argument for an empty name.
  explicit any_function(std::string_view name) : any_function(name, false) {}
  /// Names one that a worker can do by itself, without its peers. Errors:
  /// std::invalid_argument for an empty name.
  any_function(std::string_view name, alone_t) : any_function(name, true) {}

  /// Returns the name by which workers find it.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Returns whether a worker is asked to do it by itself.
  [[nodiscard]] bool is_alone() const noexcept { return is_alone_; }

 private:
  any_function(std::string_view name, bool is_alone);

  std::string name_;
  bool is_alone_;
};

namespace detail {

template <class T>
inline constexpr bool is_dref = false;
template <class T>
inline constexpr bool is_dref<dref<T>> = true;

/// Holds for what a function without types can be given.
template <class T>
concept any_given = is_dref<T> || any_source<T>;

/// A register that a call takes, by its dref at that time.
struct named_register {
  register_id which;
  std::weak_ptr<session_core> of;
};

/// Errors: std::invalid_argument for a dref that refers to nothing.
[[nodiscard]] named_register name_register(const register_node* node);

template <any_given T>
void write_any_argument(remote_request& into, const T& given) {
  if constexpr (is_dref<T>) {
    into.take(register_in(*into.core, access::core(given)));
  } else {
    write_any(into.values, given);
  }
}

}  // namespace detail

/// Arguments of a call, of a number that is known only at run time.
///
///     mw::any_arguments given;
///     for (const float each : x) given.add(each);
///     given.add(weights);  // a dref
///     co_await tp.call(mw::any_function(text), given).from(0);
///
/// Lifetime: it must live until the await on the call has ended. A dref that was added
/// and dropped before the call is refused by it (`register_lost`).
class any_arguments {
 public:
  any_arguments() noexcept = default;
  /// Makes one argument of each value.
  explicit any_arguments(std::span<const any_value> values)
      : all_(values.begin(), values.end()) {}

  /// Adds a value, or a dref. Errors: those of `any_value`; std::invalid_argument for a
  /// dref that refers to nothing.
  template <class T>
  void add(const T& given) {
    static_assert(detail::any_given<T>,
                  "an argument is a value (mw::argument), a text or a mw::dref");
    if constexpr (detail::is_dref<T>) {
      all_.emplace_back(detail::name_register(detail::access::core(given)));
    } else if constexpr (detail::any_given<T>) {
      all_.emplace_back(any_value(given));
    }
  }
  /// Adds a tensor in host memory, and takes it over. Errors: std::invalid_argument if it
  /// lies elsewhere.
  void add(tensor&& given) { all_.emplace_back(any_value(std::move(given))); }

  /// Returns how many there are.
  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }

 private:
  friend struct detail::access;
  using one = std::variant<any_value, detail::named_register>;
  /// What `detail::access::core` gives.
  [[nodiscard]] const std::vector<one>& existing_core() const noexcept { return all_; }

  std::vector<one> all_;
};

namespace detail {

/// Errors: std::invalid_argument for a dref of another session.
void write_all_arguments(remote_request& into, const any_arguments& given);

}  // namespace detail

}  // namespace manyworlds::inline v0
