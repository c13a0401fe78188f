// Socket address: an IPv4 or IPv6 address with a port, as a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "manyworlds/detail/config.hpp"

struct sockaddr;

namespace manyworlds::inline v0 {

/// A numeric address and port, which can be compared and copied. For names see `resolve`.
class socket_address {
 public:
  socket_address() noexcept = default;

  /// Parses "127.0.0.1:29500" or "[::1]:29500". Returns nothing for anything else, names
  /// included.
  [[nodiscard]] static std::optional<socket_address> parse(
      std::string_view text) noexcept;
  /// Returns 127.0.0.1 with a port.
  [[nodiscard]] static socket_address loopback(std::uint16_t port) noexcept;
  /// Copies a sockaddr_in or sockaddr_in6. Returns nothing for other families or short
  /// lengths.
  [[nodiscard]] static std::optional<socket_address> from_native(
      const sockaddr* address, unsigned length) noexcept;

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Returns the same address with another port.
  [[nodiscard]] socket_address with_port(std::uint16_t port) const noexcept {
    socket_address a = *this;
    a.port_ = port;
    return a;
  }
  [[nodiscard]] bool is_valid() const noexcept { return family_ != family::none; }
  [[nodiscard]] bool is_ipv6() const noexcept { return family_ == family::ipv6; }
  [[nodiscard]] bool is_loopback() const noexcept;
  /// Returns true for 0.0.0.0 and [::], which serve to listen on, not to dial.
  [[nodiscard]] bool is_wildcard() const noexcept;

  /// Writes a sockaddr into `storage` (at least 28 bytes). Returns its length.
  unsigned to_native(void* storage) const noexcept;
  /// Returns the text that `parse` reads.
  [[nodiscard]] std::string text() const;

  friend bool operator==(const socket_address&, const socket_address&) noexcept = default;

 private:
  enum class family : std::uint8_t { none, ipv4, ipv6 };

  std::uint8_t bytes_[16]{};
  std::uint32_t scope_ = 0;
  std::uint16_t port_ = 0;
  family family_ = family::none;
};

}  // namespace manyworlds::inline v0
