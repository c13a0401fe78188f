#include "link/process_watch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "io/process_list.hpp"
#include "io/stream.hpp"
#include "manyworlds/detail/assertion.hpp"

// This is newer than Debian 12's headers.
#if !defined(SO_PEERPIDFD)
#define SO_PEERPIDFD 77
#endif

namespace manyworlds::inline v0::detail::shm {

namespace {

/// Returns when a process was started, rounded down to the kernel's tick of 10 ms, or
/// nothing where /proc does not tell.
std::optional<boot_time> start_of(pid_t number) {
  const std::optional<listed_process> seen = look_at_process(number);
  const long per_second = ::sysconf(_SC_CLK_TCK);
  if (!seen || per_second <= 0) return {};
  const auto ticks = static_cast<std::int64_t>(seen->started);
  return boot_time(ticks * (1'000'000'000 / per_second));
}

bool is_hung_up(int connection) noexcept {
  ::pollfd asked{connection, POLLRDHUP, 0};
  return ::poll(&asked, 1, 0) == 1 &&
         (asked.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

}  // namespace

boot_time boot_time_now() noexcept {
  ::timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + boot_time(now.tv_nsec);
}

process_watch process_watch::with(int descriptor) noexcept {
  MW_ASSERT(descriptor >= 0, "a process is watched by a descriptor");
  process_watch w(state::watching);
  w.descriptor_ = unique_descriptor(descriptor);
  return w;
}

process_watch process_watch::blind(std::string why) {
  process_watch w(state::blind);
  w.error_message_ = std::move(why);
  return w;
}

process_watch process_watch::of_peer(int connection, boot_time met) {
  int descriptor = -1;
  ::socklen_t size = sizeof descriptor;
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERPIDFD, &descriptor, &size) == 0) {
    return with(descriptor);
  }
  // The process has ended and was waited for; the kernel's version decides which errno
  // says so. Any other errno: not known here, or refused.
  if (errno == ESRCH || errno == EINVAL) return over();
  return of_peer_by_number(connection, met);
}

process_watch process_watch::of_peer_by_number(int connection, boot_time met) {
  ::ucred peer{};
  ::socklen_t size = sizeof peer;
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return blind(std::string("the kernel does not name the peer's process (") +
                 std::strerror(errno) + "): its end is noticed by its sockets");
  }
  // The peer lives in another pid namespace.
  if (peer.pid <= 0) {
    return blind(
        "the peer's process is not visible from here: its end is noticed by its "
        "sockets");
  }
  return of_number(peer.pid, connection, met);
}

process_watch process_watch::of_number(pid_t number, int connection, boot_time met) {
  const auto descriptor = static_cast<int>(::syscall(SYS_pidfd_open, number, 0));
  if (descriptor < 0) {
    if (errno == ESRCH) return over();
    return blind(
        std::string("pidfd_open is refused here (") + std::strerror(errno) +
        "): the end of a peer's process is noticed by its sockets; usual causes: "
        "Linux before 5.3, a seccomp filter");
  }
  process_watch found = with(descriptor);
  // The start is read after the descriptor was made and before that is polled: until
  // its process ends, no other one has the number.
  const std::optional<boot_time> started = start_of(number);
  if (found.has_ended()) return over();
  if (started && *started > met) return over();
  // Without /proc only the connection tells: the peer's end of it closed with the peer,
  // unless a child of the peer holds it.
  if (!started && is_hung_up(connection)) return over();
  return found;
}

bool process_watch::has_ended() const noexcept {
  if (state_ != state::watching) return state_ == state::ended;
  ::pollfd asked{descriptor_.get(), POLLIN, 0};
  return ::poll(&asked, 1, 0) == 1;
}

task<void> process_watch::ended(reactor& service) const {
  // Readiness of a pidfd is final, but the engine may fail to wait.
  while (!has_ended()) {
    const io_result woken = co_await io_awaiter(
        service, io_kind::readable, static_cast<socket_handle>(descriptor_.get()));
    if (!woken.ok()) co_return;
  }
}

}  // namespace manyworlds::inline v0::detail::shm
