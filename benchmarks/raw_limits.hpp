// Raw limits: what plain sockets do between the same two processes, in the same run.
#pragma once

#include <cstddef>
#include <span>

#include "timing.hpp"

namespace mwbench {

/// How the plain sockets wait: in the kernel, or by asking again and again.
enum class waiting { blocking, spinning };

/// Half round trips in microseconds, as many as `count`; the other side echoes.
samples raw_ping(int fd, std::span<char> buffer, int count, waiting how);
void raw_echo(int fd, std::span<char> buffer, int count, waiting how);

/// Seconds until `count` messages one way were taken; the other side drains.
double raw_stream(int fd, std::span<char> buffer, int count, waiting how);
void raw_drain(int fd, std::span<char> buffer, int count, waiting how);

}  // namespace mwbench
