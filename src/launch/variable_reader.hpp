// Variable reader: variables of an environment as numbers, pairs and addresses, each
// checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "manyworlds/launch/launch_context.hpp"

namespace manyworlds::inline v0::detail {

/// Reads variables by name. Errors: every function throws launch_error naming the
/// variable, if it is set and empty or makes no sense.
class variable_reader {
 public:
  /// Jobs with more processes, and numbers of the like, are refused.
  static constexpr std::int64_t most_processes = 1 << 20;
  static constexpr std::int64_t most_of_a_count = INT32_MAX;

  explicit variable_reader(const launch_variables& variables) noexcept
      : variables_(variables) {}

  [[nodiscard]] bool has(std::string_view name) const {
    return variables_.find(name) != variables_.end();
  }
  /// Returns the value as it is, also an empty one; nothing if it is not set.
  [[nodiscard]] std::optional<std::string_view> raw(std::string_view name) const;
  /// Returns the value; nothing if it is not set.
  [[nodiscard]] std::optional<std::string> text(std::string_view name) const;
  /// Returns the first of two that is set.
  [[nodiscard]] std::optional<std::string> text(std::string_view first,
                                                std::string_view second) const;
  /// Returns the value. Errors: launch_error also if it is not set.
  [[nodiscard]] std::string required(std::string_view name,
                                     std::string_view expected) const;
  [[nodiscard]] std::optional<std::int64_t> number(std::string_view name,
                                                   std::int64_t least,
                                                   std::int64_t most) const;
  [[nodiscard]] std::int64_t required_number(std::string_view name, std::int64_t least,
                                             std::int64_t most) const;
  /// Returns true for "1", false for "0" and if it is not set.
  [[nodiscard]] bool flag(std::string_view name) const;

  struct place {
    rank_t rank = 0;
    rank_t size = 1;
    friend bool operator==(const place&, const place&) noexcept = default;
  };
  /// Returns a rank and the size that it is below. Errors: launch_error also if one of
  /// them is not set.
  [[nodiscard]] place required_place(std::string_view rank, std::string_view size) const;
  /// Returns nothing if neither is set.
  [[nodiscard]] std::optional<place> find_place(std::string_view rank,
                                                std::string_view size) const;
  /// Returns "host:port" of two variables, with brackets around an IPv6 address; nothing
  /// if neither is set.
  [[nodiscard]] std::optional<std::string> endpoint(std::string_view host,
                                                    std::string_view port) const;
  /// Returns the "host:port" of one variable; nothing if it is not set.
  [[nodiscard]] std::optional<std::string> endpoint(std::string_view name) const;

 private:
  const launch_variables& variables_;
};

/// Returns the host of "host:port" or "[host]:port".
[[nodiscard]] std::string_view host_of(std::string_view endpoint) noexcept;
/// Returns the port of such an endpoint; nothing if there is none.
[[nodiscard]] std::optional<std::uint16_t> port_of(std::string_view endpoint) noexcept;
/// Joins both, with brackets around an IPv6 address.
[[nodiscard]] std::string endpoint_of(std::string_view host, std::uint16_t port);
/// Returns true for "localhost" and numeric loopback addresses, which need no lookup.
[[nodiscard]] bool names_loopback(std::string_view host) noexcept;

}  // namespace manyworlds::inline v0::detail
