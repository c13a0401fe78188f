// Worker process: what the process of a worker does for its controller.
#pragma once

#include <unistd.h>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/spmd/function_table.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "spmd/worker_loop.hpp"

namespace manyworlds::inline v0::detail {

/// Ends the process by SIGALRM a second after it was set, unless it is destroyed before:
/// what computes, or blocks its thread, hears of no cancellation. It is the alarm of the
/// whole process.
class last_alarm {
 public:
  last_alarm() = default;
  last_alarm(const last_alarm&) = delete;
  last_alarm& operator=(const last_alarm&) = delete;
  ~last_alarm() {
    if (is_set_) ::alarm(0);
  }
  void set() noexcept {
    is_set_ = true;
    ::alarm(1);
  }

 private:
  bool is_set_ = false;
};

/// Serves one controller until the session is closed. `at_last` is set when the
/// controller is gone. Errors: those of `worker_loop`, and why it cannot begin, of which
/// the controller reads. Lifetime: all outlive the task.
[[nodiscard]] task<void> serve_controller(runtime& rt, store& meeting,
                                          const function_table& functions,
                                          worker_seat seat, last_alarm& at_last);

}  // namespace manyworlds::inline v0::detail
