#include "manyworlds/detail/stream_wait.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "io/current_reactor.hpp"
#include "nccl/cuda_error.hpp"
#include "nccl/helper_threads.hpp"
#include "nccl/stream_facts.hpp"
#include "nccl/stream_poll.hpp"

namespace manyworlds::inline v0::detail {

namespace {

reactor& reactor_here() {
  if (auto* here = current_reactor()) return *here;
  throw std::logic_error(
      executor::current()
          ? "waiting for a stream needs a reactor: await it in a task of a runtime, not "
            "of a foreign executor"
          : "waiting for a stream needs a reactor: await it in a task of a runtime");
}

/// For a call that is as good as over when its reactor ends.
constexpr std::chrono::seconds longest_call(1);

struct stream_threads {
  stream_threads() = default;
  stream_threads(const stream_threads&) = delete;
  stream_threads& operator=(const stream_threads&) = delete;
  ~stream_threads() {
    // The watcher's lock may be held by a thread that a forked child does not have.
    if (::getpid() == process) {
      asks->end();
      helpers.end(longest_call);
    } else {
      (void)asks.release();
    }
  }

  const pid_t process = ::getpid();
  nccl::helper_threads helpers;
  std::unique_ptr<nccl::watcher> asks = std::make_unique<nccl::watcher>();
};

/// The reactor's own, from its first wait on.
nccl::watcher& watcher_of(reactor& home, const char* asked) {
  std::shared_ptr<void>& kept = home.companion();
  if (!kept) kept = std::make_shared<stream_threads>();
  auto& threads = *static_cast<stream_threads*>(kept.get());
  if (threads.process != ::getpid()) {
    throw device_error(std::string(asked) + ": CUDA does not work in a forked child");
  }
  if (threads.asks->start(threads.helpers)) return *threads.asks;
  throw device_error(std::string(asked) + ": no thread can be started to call CUDA");
}

/// Returns the calling thread's device where `on` or `after` is a stream of it, which the
/// watcher's thread could not know. Takes no lock of the driver's, and makes no context.
int awaiting_device(device_stream on, device_stream after, const char* asked) {
  const nccl::cuda_library& cuda = nccl::cuda_for(asked);
  int device = 0;
  if (!nccl::is_of_threads_device(cuda, on) &&
      !(after && nccl::is_of_threads_device(cuda, after))) {
    return device;
  }
  if (const auto error = cuda.cudaGetDevice(&device); error != cudaSuccess) {
    nccl::refuse(asked, error);
  }
  return device;
}

}  // namespace

executor& stream_wait::await_home() const { return reactor_here(); }

void stream_wait::begin(continuation& waiter, const nccl::copy_plan* copy) {
  reactor& home = reactor_here();
  const char* const asked = copy ? "waiting for a copy" : "waiting for a stream";
  nccl::check_stream(on_, asked);
  if (copy && copy->to_device && copy->from_device) {
    nccl::check_stream(copy->after, "the source of a copy");
  }
  const int device = awaiting_device(on_, copy ? copy->after : device_stream(), asked);
  nccl::watcher& asks = watcher_of(home, asked);
  poll_ = std::make_shared<nccl::stream_poll>(on_, copy, device);
  poll_->heard = std::make_shared<nccl::async_result>(home, [this] { hear(); });
  if (poll_->is_of_this_thread()) poll_->begin_here();
  waiter_ = &waiter;
  asks.add(poll_);
}

stream_wait::~stream_wait() {
  if (!waiter_) return;
  poll_->cancel();
  poll_->heard->drop();
}

void stream_wait::hear() { std::exchange(waiter_, nullptr)->resume(); }

bool stream_wait::await_cancel() noexcept {
  if (waiter_) poll_->cancel();
  return false;
}

bool stream_wait::await_must_resume() const noexcept {
  return !poll_ || !poll_->is_cancelled() || poll_->has_failed();
}

void stream_wait::await_resume() const {
  if (poll_) poll_->rethrow();
}

}  // namespace manyworlds::inline v0::detail
