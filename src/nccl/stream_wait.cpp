#include "manyworlds/nccl/stream_wait.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "../io/current_reactor.hpp"
#include "cuda_error.hpp"
#include "stream_facts.hpp"

namespace manyworlds::inline v0 {

namespace {

constexpr duration shortest_sleep = std::chrono::microseconds(20);
constexpr duration longest_pause = std::chrono::milliseconds(1);

reactor& reactor_here() {
  if (auto* here = current_reactor()) return *here;
  throw std::logic_error(
      executor::current()
          ? "what waits for a stream must be awaited on a reactor: the executor that "
            "runs "
            "here is none"
          : "what waits for a stream must be awaited on a reactor: none runs here");
}

}  // namespace

executor& stream_wait::await_home() const { return reactor_here(); }

void stream_wait::prepare() {
  const std::string asked = fmt::format("waiting for {}", asked_);
  reactor_ = &reactor_here();
  nccl::check_stream(on_, asked);
  const nccl::cuda_library& cuda = nccl::cuda_for(asked);
  device_ = nccl::device_of(cuda, on_, asked);
  const nccl::device_scope on_its_device(device_);
  nccl::check_not_captured(cuda, on_, asked);
  // Made for each wait: a pool would have to belong to somebody, and a wait has only a
  // reactor, which knows nothing of CUDA.
  if (const auto error = cuda.cudaEventCreateWithFlags(&event_, cudaEventDisableTiming);
      error != cudaSuccess) {
    nccl::refuse(asked, error);
  }
}

stream_wait::~stream_wait() { destroy_event(); }

bool stream_wait::wait(continuation& waiter) {
  if (!record() || ask() == answer::ended) return false;
  waiter_ = &waiter;
  begin_looking();
  reactor_->add(*this);
  return true;
}

// A device that does not even record has failed: nothing moves on it any more.
bool stream_wait::record() noexcept {
  const nccl::device_scope here(device_);
  error_ = nccl::cuda_library::get().cudaEventRecord(event_, on_.handle());
  return error_ == cudaSuccess;
}

void stream_wait::begin_looking() noexcept {
  since_ = reactor_->now();
  next_look_ = since_;
}

stream_wait::answer stream_wait::ask() noexcept {
  const nccl::cuda_library& cuda = nccl::cuda_library::get();
  {
    const nccl::device_scope here(device_);
    const auto state = cuda.cudaEventQuery(event_);
    if (state == cudaErrorNotReady) {
      // Would otherwise be found by whoever checks the thread's last error.
      (void)cuda.cudaGetLastError();
      return answer::not_yet;
    }
    if (state != cudaSuccess) {
      error_ = state;
      return answer::ended;
    }
  }
  return enqueue_more() && record() ? answer::goes_on : answer::ended;
}

bool stream_wait::poll() noexcept { return look(reactor_->recently()); }

bool stream_wait::prepare_sleep(std::optional<duration>& limit) noexcept {
  const time_point now = reactor_->now();
  if (look(now)) return false;
  const duration pause = std::max(next_look_ - now, shortest_sleep);
  limit = limit ? std::min(*limit, pause) : pause;
  return true;
}

/// True if it found something.
bool stream_wait::look(time_point now) noexcept {
  if (now < next_look_) return false;
  switch (ask()) {
    case answer::not_yet:
      next_look_ = now + std::min((now - since_) / 8, longest_pause);
      return false;
    case answer::goes_on:
      begin_looking();
      return true;
    case answer::ended:
      end();
      return true;
  }
  return false;
}

void stream_wait::end() noexcept {
  reactor_->remove(*this);
  std::exchange(waiter_, nullptr)->resume();
}

bool stream_wait::await_cancel() noexcept {
  if (waiter_) is_cancelled_ = true;
  return false;
}

void stream_wait::await_resume() const {
  if (error_ == cudaSuccess) return;
  nccl::refuse(fmt::format("waiting for {}", asked_), static_cast<cudaError_t>(error_));
}

void stream_wait::destroy_event() noexcept {
  if (!event_) return;
  const nccl::device_scope here(device_);
  (void)nccl::cuda_library::get().cudaEventDestroy(std::exchange(event_, nullptr));
}

}  // namespace manyworlds::inline v0
