// Remote memory: reading the memory of another process of this host (Linux: cross memory
// attach).
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace manyworlds::inline v0::detail::shm {

/// The address and content of some random bytes of a process, by which a peer checks
/// that it reads the right process.
struct memory_probe {
  static constexpr std::size_t size = 16;
  std::uint64_t address = 0;
  std::array<std::byte, size> content{};
};

/// Returns the end of a log line that begins with the peer: that its memory may not be
/// read, why, and what follows.
[[nodiscard]] std::string unreadable_text(int error);

/// Reads in place of a simulated kernel.
class memory_reader {
 public:
  virtual ~memory_reader() = default;
  /// Works as process_vm_readv.
  [[nodiscard]] virtual ssize_t read(std::span<const iovec> into,
                                     std::span<const iovec> from) noexcept = 0;
};

/// Reads by process_vm_readv. A pid may belong to another process later, so the caller
/// must check after a read that the peer still lives, before it uses what was read.
class remote_memory {
 public:
  /// Tries to read the probe. Returns nothing, and the errno, if it fails: EPERM
  /// (ptrace rules, seccomp), ENOSYS, or ESRCH where the pid is unknown or another
  /// process's.
  [[nodiscard]] static std::optional<remote_memory> of(pid_t pid,
                                                       const memory_probe& probe,
                                                       int& error) noexcept;

  remote_memory(pid_t pid, std::shared_ptr<memory_reader> reader) noexcept
      : pid_(pid), reader_(std::move(reader)) {}

  /// Copies from the peer's pieces to ours, in order, as much as fits both, and returns
  /// the bytes. Errors: fewer bytes, or -1 with errno, if the memory is not there or
  /// the peer is gone.
  [[nodiscard]] ssize_t read(std::span<const iovec> into,
                             std::span<const iovec> from) const noexcept;

  /// Reads one piece by way of memory from which it is copied, as `read` does where the
  /// processor makes that faster (`is_slow_by_string`).
  [[nodiscard]] ssize_t read_in_parts(const iovec& into,
                                      const iovec& from) const noexcept;

 private:
  explicit remote_memory(pid_t pid) noexcept : pid_(pid) {}
  pid_t pid_;
  std::shared_ptr<memory_reader> reader_;
};

}  // namespace manyworlds::inline v0::detail::shm
