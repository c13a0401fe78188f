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

namespace manyworlds::inline v0::shm {

/// Where a process keeps some random bytes, so that a peer can see whether it reads the
/// right process at all.
struct memory_probe {
  static constexpr std::size_t size = 16;
  std::uint64_t address = 0;
  std::array<std::byte, size> content{};
};

/// For the log, behind whose memory it is: that it may not be read, why, and what
/// follows.
[[nodiscard]] std::string unreadable_text(int error);

/// Reads in place of the kernel, where that is simulated.
class memory_reader {
 public:
  virtual ~memory_reader() = default;
  /// As process_vm_readv.
  [[nodiscard]] virtual ssize_t read(std::span<const iovec> into,
                                     std::span<const iovec> from) noexcept = 0;
};

/// Reads by process_vm_readv. A pid may belong to another process one day: whoever reads
/// makes sure afterwards that the peer still lives, and only then believes what it read.
class remote_memory {
 public:
  /// Tries it on the probe. Nothing, and the errno: EPERM (ptrace rules, seccomp),
  /// ENOSYS; ESRCH where the pid is not known or is somebody else's.
  [[nodiscard]] static std::optional<remote_memory> of(pid_t pid,
                                                       const memory_probe& probe,
                                                       int& error) noexcept;

  remote_memory(pid_t pid, std::shared_ptr<memory_reader> reader) noexcept
      : pid_(pid), reader_(std::move(reader)) {}

  /// Copies from the peer's pieces to ours, in order, as much as fits both; counts bytes.
  /// Less than asked, or -1 with errno: the memory is not there, or the peer is gone.
  [[nodiscard]] ssize_t read(std::span<const iovec> into,
                             std::span<const iovec> from) const noexcept {
    if (reader_) [[unlikely]]
      return reader_->read(into, from);
    return ::process_vm_readv(pid_, into.data(), into.size(), from.data(), from.size(),
                              0);
  }

 private:
  explicit remote_memory(pid_t pid) noexcept : pid_(pid) {}
  pid_t pid_;
  std::shared_ptr<memory_reader> reader_;
};

}  // namespace manyworlds::inline v0::shm
