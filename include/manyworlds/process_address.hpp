// Process address: where a runtime can be dialled, and which incarnation of it is meant.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "manyworlds/failure.hpp"
#include "manyworlds/io/socket_address.hpp"

namespace manyworlds::inline v0 {

/// Identifies a runtime by 128 random bits that it draws when it is made. A restarted
/// process, or another one on the same port, has others. A pid or an address is never
/// an identity.
class incarnation {
 public:
  /// The number of its bytes.
  static constexpr std::size_t size = 16;

  constexpr incarnation() noexcept = default;
  explicit incarnation(std::span<const std::byte, size> raw) noexcept {
    std::copy(raw.begin(), raw.end(), bytes_.begin());
  }
  /// Returns its bytes.
  [[nodiscard]] std::span<const std::byte, size> raw() const noexcept { return bytes_; }
  [[nodiscard]] bool is_set() const noexcept { return *this != incarnation(); }
  /// Returns the first 8 hexadecimal digits, for logs.
  [[nodiscard]] std::string text() const;

  friend bool operator==(const incarnation&, const incarnation&) noexcept = default;
  friend auto operator<=>(const incarnation&, const incarnation&) noexcept = default;

 private:
  std::array<std::byte, size> bytes_{};
};

/// Where a runtime is reached, and which one it is.
struct process_address {
  incarnation id;
  socket_address endpoint;
  process_identity identity;

  /// Returns "host (pid 4711) at 127.0.0.1:40123".
  [[nodiscard]] std::string text() const;
};

}  // namespace manyworlds::inline v0
