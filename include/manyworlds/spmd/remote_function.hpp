// Remote function: the name and the types of what workers can be asked to run.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "manyworlds/spmd/argument.hpp"

namespace manyworlds::inline v0 {

/// Says that a function takes part in no collective and no message between workers: each
/// worker can run it by itself, and so again after it was replaced.
struct alone_t {
  explicit alone_t() = default;
};

/// Stands behind the name of such a function.
inline constexpr alone_t alone{};

template <class Signature>
class remote_function;
class any_value;

namespace detail {

/// What an `any_function` takes.
using any_parameters = std::span<const any_value>;

/// The type of a register that a parameter refers to.
template <class Parameter>
concept register_parameter = std::is_lvalue_reference_v<Parameter> &&
    std::is_object_v<std::remove_reference_t<Parameter>> &&
    !std::is_volatile_v<std::remove_reference_t<Parameter>>;

template <class Parameter>
concept value_parameter = !std::is_reference_v<Parameter> && remote_value<Parameter>;

/// What a function gives: nothing, or an object that a register can hold.
template <class Result>
concept register_result = std::is_void_v<Result> ||
    (std::is_object_v<Result> && !std::is_const_v<Result> && !std::is_array_v<Result> &&
     !std::is_pointer_v<Result>);

template <class Parameter>
[[nodiscard]] constexpr value_code parameter_code() {
  if constexpr (register_parameter<Parameter>) {
    constexpr bool is_const = std::is_const_v<std::remove_reference_t<Parameter>>;
    return value_code(is_const ? "const&" : "&");
  } else if constexpr (std::same_as<Parameter, any_parameters>) {
    return value_code("any arguments");
  } else {
    return argument<Parameter>::code;
  }
}

/// How a function's types look to a program that does not know its registers' types.
template <class Result, class... Parameters>
[[nodiscard]] constexpr value_code signature_code() {
  value_code all("function");
  ((all = all.with(parameter_code<Parameters>())), ...);
  return all.with(value_code(std::is_void_v<Result> ? "void" : "register"));
}

}  // namespace detail

/// Names a function of a session's workers, with its types. The controller calls it by
/// this; it needs no implementation, and need not know the types that stay on workers.
///
///     struct model;  // lives on workers only
///     constexpr mw::remote_function<model(std::string)> read{"read", mw::alone};
///     constexpr mw::remote_function<int(const model&, mw::tensor)> next{"next"};
///
/// A parameter `T&` or `const T&` takes a register, by its `dref<T>`. Any other is a
/// value (`argument`). What it gives is a register on each worker, unless the call asks
/// for the value. A worker of another build refuses the call if the name's value types
/// differ, so a changed function gets another name.
///
/// It also names a method of a role (`role_methods`, `role_group`), which has values
/// only.
template <class Result, class... Parameters>
class remote_function<Result(Parameters...)> {
  static_assert(((detail::register_parameter<Parameters> ||
                  detail::value_parameter<Parameters>)&&...),
                "a parameter is T& or const T& of a register, or a value type for which "
                "mw::argument<T> says how it travels");
  static_assert(detail::register_result<Result>,
                "a remote function gives nothing or an object: no reference, pointer or "
                "array");

 public:
  /// What it gives.
  using result = Result;

  /// Names it. Lifetime: the text must live as long as this, as a literal does.
  constexpr explicit remote_function(std::string_view name) noexcept : name_(name) {}
  /// Names one that a worker can do by itself, without its peers.
  constexpr remote_function(std::string_view name, alone_t) noexcept
      : name_(name), is_alone_(true) {}

  /// Returns the name by which workers find it.
  [[nodiscard]] constexpr std::string_view name() const noexcept { return name_; }
  /// Returns whether a worker can do it by itself.
  [[nodiscard]] constexpr bool is_alone() const noexcept { return is_alone_; }
  /// Returns what both sides compare at the first use.
  [[nodiscard]] static constexpr value_code types() noexcept {
    return detail::signature_code<Result, Parameters...>();
  }

 private:
  std::string_view name_;
  bool is_alone_ = false;
};

}  // namespace manyworlds::inline v0
