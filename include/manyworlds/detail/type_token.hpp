// Type token: tells types apart at run time, also in programs without run-time type
// information.
#pragma once

#include <string_view>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// Returns the name of T as the compiler writes it.
template <class T>
[[nodiscard]] consteval std::string_view spelled_name() {
  // g++: "... [with T = layer; std::string_view = ...]"; clang: "... [T = layer]".
  std::string_view text = __PRETTY_FUNCTION__;
  text.remove_prefix(text.find("T = ") + 4);
  const auto behind = text.find("; std::string_view = ");
  return text.substr(0, behind != std::string_view::npos ? behind : text.size() - 1);
}

template <class T>
struct type_identity_of {
  /// Its address differs for each type. Visible, so that it is the same in all shared
  /// objects of a process.
  __attribute__((visibility("default"))) static constexpr char here = 0;
};

/// Identifies a type. Two of one program are equal only for one type; those of a plugin
/// are compared by name, unless the name does not tell types of two files apart.
class type_token {
 public:
  template <class T>
  [[nodiscard]] static constexpr type_token of() noexcept {
    return type_token(&type_identity_of<T>::here, spelled_name<T>());
  }

  /// Returns the type's name, for people.
  [[nodiscard]] constexpr std::string_view name() const noexcept { return name_; }

  friend constexpr bool operator==(const type_token& a, const type_token& b) noexcept {
    if (a.identity_ == b.identity_) return true;
    return a.name_ == b.name_ && a.name_.find("anonymous") == std::string_view::npos &&
           a.name_.find("lambda") == std::string_view::npos;
  }

 private:
  constexpr type_token(const void* identity, std::string_view name) noexcept
      : identity_(identity), name_(name) {}

  const void* identity_;
  std::string_view name_;
};

}  // namespace manyworlds::inline v0::detail
