// Local socket: packets with descriptors, between processes of one host.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "io/descriptor.hpp"
#include "io/reactor.hpp"
#include "manyworlds/coro/task.hpp"

namespace manyworlds::inline v0::detail::shm {

inline constexpr std::size_t most_passed = 2;
using passed_descriptors = std::array<unique_descriptor, most_passed>;

/// Receives one packet if it is there now. Errors: EAGAIN if not, EBADMSG as below.
[[nodiscard]] io_result receive_packet(int socket, std::span<std::byte> buffer,
                                       passed_descriptors& passed) noexcept;
/// Sends one packet. Returns 0 or the errno: EAGAIN if there is no room for it.
/// Precondition: at most `most_passed` descriptors.
[[nodiscard]] int send_packet(int socket, std::span<const std::byte> packet,
                              std::span<const int> descriptors) noexcept;

/// A non-blocking Unix socket of packets (SOCK_SEQPACKET) in the abstract namespace. It
/// leaves nothing in a file system, and only processes of the same network namespace
/// find it. Thread: the reactor's.
class local_socket {
 public:
  local_socket() noexcept = default;

  /// Listens. Returns 0 or the errno (EADDRINUSE ...).
  [[nodiscard]] int listen(std::string_view name) noexcept;
  /// Connects. Returns 0 or the errno; ECONNREFUSED: no process listens under that name
  /// here.
  [[nodiscard]] int connect(std::string_view name) noexcept;
  [[nodiscard]] bool is_open() const noexcept { return static_cast<bool>(fd_); }

  /// Accepts the next connection. Errors: the errno (EMFILE ...).
  [[nodiscard]] task<io_result> accept(reactor& r, local_socket& into);
  /// Receives one whole packet; 0 bytes are the end. Errors: EBADMSG if it was longer
  /// than the buffer, or carried more descriptors than there is room for.
  [[nodiscard]] task<io_result> receive(reactor& r, std::span<std::byte> buffer,
                                        passed_descriptors& passed);
  /// Sends one packet. Returns 0 or the errno. A fresh connection always has room for
  /// one.
  [[nodiscard]] int send(std::span<const std::byte> packet,
                         std::span<const int> descriptors) noexcept {
    return send_packet(fd_.get(), packet, descriptors);
  }

  /// Returns the pid of the process that connected or listens, or 0 if it lives in a
  /// foreign pid namespace.
  [[nodiscard]] pid_t peer_pid() const noexcept;
  [[nodiscard]] int descriptor() const noexcept { return fd_.get(); }
  [[nodiscard]] unique_descriptor take() noexcept { return std::move(fd_); }

 private:
  [[nodiscard]] int open() noexcept;

  unique_descriptor fd_;
};

}  // namespace manyworlds::inline v0::detail::shm
