#include "io/process_handle.hpp"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "io/stream.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

// Newer than some headers.
constexpr auto by_pidfd = static_cast<idtype_t>(3);

process_status status_of(const siginfo_t& info) noexcept {
  process_status s;
  if (info.si_code == CLD_EXITED) {
    s.code = info.si_status;
  } else {
    s.signal = info.si_status;
    s.core_dumped = info.si_code == CLD_DUMPED;
  }
  return s;
}

}  // namespace

bool process_handle::has_ended() const noexcept {
  ::pollfd asked{end_.get(), POLLIN, 0};
  return is_reaped_ || ::poll(&asked, 1, 0) == 1;
}

task<void> process_handle::ended(reactor& home) const {
  // Readiness is final, but the engine may end a wait early, or fail to wait.
  while (!has_ended()) {
    const io_result woken = co_await io_awaiter(home, io_kind::readable,
                                                static_cast<socket_handle>(end_.get()));
    if (!woken.ok() && woken.error() != EINTR && woken.error() != EAGAIN)
      throw std::system_error(woken.error(), std::generic_category(),
                              "waiting for the end of a process");
  }
}

void process_handle::signal(int number) const noexcept {
  if (is_reaped_) return;
  if (is_pidfd_ && ::syscall(SYS_pidfd_send_signal, end_.get(), number, nullptr, 0) == 0)
    return;
  // Other code may have reaped it, and the number be another process's.
  if (is_pidfd_ && errno == ESRCH) return;
  // Until it is reaped no other process has the number.
  ::kill(pid_, number);
}

process_status process_handle::reap() noexcept {
  MW_ASSERT(!is_reaped_ && has_ended(), "a process is reaped once, when it has ended");
  is_reaped_ = true;
  siginfo_t info{};
  int done = -1;
  if (is_pidfd_) {
    do {
      done = ::waitid(by_pidfd, static_cast<id_t>(end_.get()), &info, WEXITED | WNOHANG);
    } while (done != 0 && errno == EINTR);
  }
  // Linux 5.3 has the descriptors, and no wait on them.
  if (done != 0 && (!is_pidfd_ || errno == EINVAL)) {
    do {
      done = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG);
    } while (done != 0 && errno == EINTR);
  }
  if (done == 0 && info.si_pid == pid_) return status_of(info);
  process_status lost;
  lost.reaped_elsewhere = true;
  return lost;
}

}  // namespace manyworlds::inline v0::detail
