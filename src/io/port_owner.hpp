// Port owner: names the process that listens on a taken port, for the error that says so.
#pragma once

#include <cstdint>
#include <string>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// Returns "pid 4711 (torchrun)" for a process of this machine that listens on the TCP
/// port in our network namespace; "a process of user 0" where its descriptors may not be
/// read; empty if none is found. It reads /proc, which takes milliseconds.
[[nodiscard]] std::string port_owner(std::uint16_t port);

}  // namespace manyworlds::inline v0::detail
