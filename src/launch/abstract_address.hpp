// Abstract address: the name of a Unix socket that stands in no folder.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <string_view>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

/// Ends with its socket, so that no name is ever stale.
struct abstract_address {
  static constexpr std::size_t longest = sizeof(sockaddr_un::sun_path) - 1;

  /// Precondition: the name is not longer than `longest`.
  explicit abstract_address(std::string_view name) noexcept {
    MW_ASSERT(name.size() <= longest, "a name of a socket fits");
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&address);
  }

  sockaddr_un address{};
  socklen_t length = 0;
};

}  // namespace manyworlds::inline v0::detail
