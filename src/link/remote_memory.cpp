#include "link/remote_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "memory/payload_copy.hpp"

namespace manyworlds::inline v0::detail::shm {

namespace {

/// Less is read faster at once, although the kernel copies it slowly.
constexpr std::size_t least_in_parts = 2048;
/// A part that its copy finds in the caches. Measured on Zen 3, a page-aligned MiB into
/// memory of malloc: 670 us at once, 220 by parts; where the kernel copies fast 135.
constexpr std::size_t part_bytes = std::size_t{32} * 1024;

}  // namespace

std::string unreadable_text(int error) {
  std::string text = "may not be read (process_vm_readv: ";
  text += std::strerror(error);
  text +=
      "): its large messages are copied through shared memory, which is slower; usual "
      "causes: ";
  switch (error) {
    case ESRCH:
      return text + "containers that do not share a pid namespace";
    case ENOSYS:
      return text + "a sandbox such as gVisor, a kernel without cross memory attach";
    default:
      return text +
             "a seccomp filter (profiles of Docker and others block it unless "
             "CAP_SYS_PTRACE is given), another user, sysctl "
             "kernel.yama.ptrace_scope";
  }
}

std::optional<remote_memory> remote_memory::of(pid_t pid, const memory_probe& probe,
                                               int& error) noexcept {
  if (pid <= 0) {
    error = ESRCH;
    return std::nullopt;
  }
  const remote_memory found(pid);
  std::array<std::byte, memory_probe::size> seen{};
  const iovec into{seen.data(), seen.size()};
  const iovec from{reinterpret_cast<void*>(probe.address), seen.size()};
  const ssize_t got = found.read({&into, 1}, {&from, 1});
  if (got < 0) {
    error = errno;
    return std::nullopt;
  }
  if (static_cast<std::size_t>(got) != seen.size() || seen != probe.content) {
    error = ESRCH;
    return std::nullopt;
  }
  error = 0;
  return found;
}

// Lists are read at once, wherever their pieces stand: these are short most often.
ssize_t remote_memory::read(std::span<const iovec> into,
                            std::span<const iovec> from) const noexcept {
  if (reader_) [[unlikely]]
    return reader_->read(into, from);
  if (into.size() == 1 && from.size() == 1 && from[0].iov_len >= least_in_parts &&
      is_slow_by_string(into[0].iov_base, from[0].iov_base)) {
    return read_in_parts(into[0], from[0]);
  }
  return ::process_vm_readv(pid_, into.data(), into.size(), from.data(), from.size(), 0);
}

ssize_t remote_memory::read_in_parts(const iovec& into,
                                     const iovec& from) const noexcept {
  constexpr std::size_t line = 64;
  alignas(line) std::array<std::byte, part_bytes + line> between;
  // As far behind a line as the source: whole lines apart from it, which is fast.
  std::byte* const at =
      between.data() + reinterpret_cast<std::uintptr_t>(from.iov_base) % line;
  const std::size_t bytes = std::min(into.iov_len, from.iov_len);
  std::size_t done = 0;
  while (done < bytes) {
    const std::size_t part = std::min(bytes - done, part_bytes);
    const iovec here{at, part};
    const iovec there{static_cast<std::byte*>(from.iov_base) + done, part};
    const ssize_t got = ::process_vm_readv(pid_, &here, 1, &there, 1, 0);
    // Why it ends is worth more than what came before.
    if (got <= 0) return got;
    copy_payload(static_cast<std::byte*>(into.iov_base) + done, at,
                 static_cast<std::size_t>(got));
    done += static_cast<std::size_t>(got);
    if (static_cast<std::size_t>(got) < part) break;
  }
  return static_cast<ssize_t>(done);
}

}  // namespace manyworlds::inline v0::detail::shm
