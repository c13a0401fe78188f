// DNS query: asks the name servers for one name, by c-ares.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/name_files.hpp"
#include "io/reactor.hpp"
#include "io/resolve.hpp"

// Only the library's own sources use this. The build system says 0 where it found no
// c-ares; else what lies on the include path decides.
#if !defined(MANYWORLDS_HAS_C_ARES)
#if __has_include(<ares.h>)
#define MANYWORLDS_HAS_C_ARES 1
#else
#define MANYWORLDS_HAS_C_ARES 0
#endif
#endif

namespace manyworlds::inline v0::detail {

/// A host name and a port. It is not an aggregate, because it is passed in awaited
/// expressions (g++ 12.2).
struct host_and_port_number {
  host_and_port_number(std::string h, std::uint16_t p) noexcept
      : host(std::move(h)), port(p) {}

  std::string host;
  std::uint16_t port;
};

/// Returns "10.0.0.2:53, 10.0.0.3:53".
[[nodiscard]] std::string text_of(const std::vector<socket_address>& servers);

/// Asks for IPv4 and IPv6 addresses. Thread: its sockets are in an epoll set that `home`
/// awaits, so the task must run there. They are closed when the task has ended or is
/// cancelled. It fails, and says so, in a build without c-ares.
[[nodiscard]] task<resolution> ask_name_servers(reactor& home, host_and_port_number name,
                                                dns_settings settings);

}  // namespace manyworlds::inline v0::detail
