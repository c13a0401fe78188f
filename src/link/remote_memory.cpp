#include "link/remote_memory.hpp"

#include <cerrno>
#include <cstring>

namespace manyworlds::inline v0::detail::shm {

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

}  // namespace manyworlds::inline v0::detail::shm
