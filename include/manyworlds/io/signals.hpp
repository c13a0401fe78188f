// Signals: a task waits for a signal to the process, such as SIGTERM.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <concepts>
#include <cstdint>
#include <string>

#include "manyworlds/coro/task.hpp"

namespace manyworlds::inline v0 {

/// The signals to wait for. The class is trivially destructible, so that it can be
/// written in an awaited expression.
class signal_set {
 public:
  /// Makes a set of these numbers. Errors: std::invalid_argument for a number that is no
  /// signal, or cannot be waited for. Those are SIGKILL, SIGSTOP, and the faults
  /// (SIGSEGV, SIGBUS, SIGFPE, SIGILL), which a thread sends to itself.
  template <std::same_as<int>... Numbers>
  requires(sizeof...(Numbers) > 0)
      signal_set(Numbers... numbers) {  // NOLINT(google-explicit-constructor)
    (add(numbers), ...);
  }

  /// Returns whether the signal is one of the set.
  [[nodiscard]] bool has(int number) const noexcept {
    return number > 0 && number <= 64 && (bits_ >> (number - 1) & 1) != 0;
  }

 private:
  void add(int number);
  std::uint64_t bits_ = 0;
};

/// A signal that came.
struct received_signal {
  int number = 0;
  /// The sending process; 0 if the kernel sent it, as at Ctrl-C.
  pid_t sender = 0;
  uid_t sender_user = 0;

  /// Returns "SIGTERM", or "signal 34" for one without a name.
  [[nodiscard]] std::string text() const;
};

/// Waits for one of these signals, through a signalfd that the reactor's engine watches:
/// no handler is installed, and nothing happens in programs that do not call this.
///
///     mw::runtime rt;
///     auto serving = rt.start(serve(rt));
///     rt.start(mw::until_signal({SIGTERM, SIGINT})).get();   // in main, once
///     rt.stop(10s);
///
/// Thread: the call itself, not the await, blocks the signals on the calling thread, and
/// they stay blocked there. A signal that a thread does not block would end the process
/// instead of ending the wait. Threads that are started later inherit that; those of a
/// runtime block all signals anyway. So call it in main before other threads are started,
/// and await what it gave when it suits.
///
/// Programs that the process starts later inherit the blocked signals too, unless they
/// are given another mask.
///
/// Each signal is taken by one waiter, also among several runtimes. One that comes while
/// nothing waits is kept, and ends the next wait at once; several of one kind are one. So
/// a second SIGTERM during the drain does nothing unless it is awaited again, say to stop
/// at once; SIGKILL always works. Signals to one thread (`raise`, `pthread_kill`) are not
/// seen; signals to the process are (`kill`, a terminal, systemd, Kubernetes, Slurm).
///
/// Errors: the call throws std::logic_error naming a thread that does not block the
/// signals, and std::system_error if the process is out of descriptors. The await throws
/// std::logic_error where the task does not live on a reactor of this machine (a
/// simulation sends no signals). The wait may be cancelled.
task<received_signal> until_signal(signal_set signals);

}  // namespace manyworlds::inline v0
