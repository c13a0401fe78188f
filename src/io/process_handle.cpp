#include "io/process_handle.hpp"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "io/stream.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

using namespace std::chrono_literals;

/// How long a tracer may hold the end of a process. A runtime that ends has 10 s for its
/// tasks.
constexpr duration longest_trace = 5s;
/// The longest pause between two looks whether it does.
constexpr duration longest_look_for_end = 50ms;

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

process_status lost_status() noexcept {
  process_status lost;
  lost.reaped_elsewhere = true;
  return lost;
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

std::optional<process_status> process_handle::try_to_reap() const noexcept {
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
  // It is our child, and its end is shown to another process for now.
  if (done == 0) return {};
  return lost_status();
}

task<process_status> process_handle::reap(reactor& home) {
  MW_ASSERT(!is_reaped_ && has_ended(), "a process is reaped once, when it has ended");
  // The kernel shows the end of a traced process to its tracer alone, until that waits
  // for it or ends. A debugger is one, and so is the child by which a leak checker looks
  // at its parent. The descriptor is readable all the while: nothing tells us of the
  // moment.
  const time_point until = home.now() + longest_trace;
  std::optional<process_status> status = try_to_reap();
  for (duration look = 1ms; !status && home.now() < until;
       look = std::min(2 * look, longest_look_for_end)) {
    co_await sleep_for(look);
    status = try_to_reap();
  }
  is_reaped_ = true;
  co_return status ? *status : lost_status();
}

}  // namespace manyworlds::inline v0::detail
