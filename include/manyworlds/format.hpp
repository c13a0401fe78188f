// Formatters: the library's words for fmt. The only public header that includes fmt.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string_view>

#include "manyworlds/address.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/io/socket_address.hpp"
#include "manyworlds/memory/dtype.hpp"
#include "manyworlds/observe/log.hpp"
#include "manyworlds/process_address.hpp"
#include "manyworlds/world/world_state.hpp"

namespace manyworlds::inline v0 {

namespace detail {

/// Types that `name_of` names: causes, kinds of operations, states, element types, log
/// levels.
template <class T>
concept named = std::same_as<T, enum cause> || std::same_as<T, operation_kind> ||
    std::same_as<T, world_state> || std::same_as<T, dtype> || std::same_as<T, log_level>;

/// Types that print themselves: addresses, incarnations, failures.
template <class T>
concept self_printing = std::same_as<T, failure> || std::same_as<T, socket_address> ||
    std::same_as<T, incarnation> || std::same_as<T, process_address>;

}  // namespace detail

}  // namespace manyworlds::inline v0

// All take a string's format specification: width, alignment, precision.

template <manyworlds::detail::named T>
struct fmt::formatter<T> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(T value, Context& context) const {
    return fmt::formatter<std::string_view>::format(name_of(value), context);
  }
};

template <manyworlds::detail::self_printing T>
struct fmt::formatter<T> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const T& value, Context& context) const {
    return fmt::formatter<std::string_view>::format(value.text(), context);
  }
};

template <std::size_t Capacity>
struct fmt::formatter<manyworlds::inline_text<Capacity>>
    : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const manyworlds::inline_text<Capacity>& value, Context& context) const {
    return fmt::formatter<std::string_view>::format(value.view(), context);
  }
};

/// Prints "rank 3", or "any".
template <>
struct fmt::formatter<manyworlds::from> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(manyworlds::from value, Context& context) const {
    return fmt::formatter<std::string_view>::format(
        value.is_any() ? "any" : fmt::format("rank {}", value.rank()), context);
  }
};

template <>
struct fmt::formatter<manyworlds::to> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(manyworlds::to value, Context& context) const {
    return fmt::formatter<std::string_view>::format(fmt::format("rank {}", value.rank()),
                                                    context);
  }
};

/// Prints "lane 7".
template <>
struct fmt::formatter<manyworlds::lane> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(manyworlds::lane value, Context& context) const {
    return fmt::formatter<std::string_view>::format(
        fmt::format("lane {}", value.number()), context);
  }
};
