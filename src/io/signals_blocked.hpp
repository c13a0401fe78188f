// Signals blocked: signals belong to the application, and its own threads handle them.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace manyworlds::inline v0::detail {

/// Blocks all signals on the calling thread while it lives. A thread that is started
/// meanwhile inherits that, and takes none of them.
class signals_blocked {
 public:
  signals_blocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  signals_blocked(const signals_blocked&) = delete;
  signals_blocked& operator=(const signals_blocked&) = delete;
  ~signals_blocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace manyworlds::inline v0::detail
