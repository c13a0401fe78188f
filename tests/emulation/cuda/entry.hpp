// How every call begins and ends: what may refuse it, and the thread's last error.
#pragma once

#include <driver_types.h>

#include <new>
#include <optional>
#include <system_error>

#include "driver_lock.hpp"
#include "machine.hpp"

namespace emulated {

struct call_rules {
  // It may wait for the device, so a capture may forbid it.
  bool unsafe = false;
  // It also takes effect when the process is broken, though it gives the error.
  bool when_broken = false;
  // It needs no context, and makes none.
  bool contextless = false;
  // It asks the driver for nothing that another thread may be changing.
  bool lockless = false;
  // Its body asks the stream, or the event, whether it shows that the process is broken.
  bool asks_work = false;
};

constexpr call_rules ordinary{};
constexpr call_rules unsafe{true, false, false};
constexpr call_rules freeing{false, true, false};
constexpr call_rules unsafe_freeing{true, true, false};
constexpr call_rules contextless{false, false, true};
constexpr call_rules lockless{false, false, true, true};
constexpr call_rules asking{true, false, false, false, true};

// The device of the context that the calling thread has; without one, that of the context
// which the runtime would make it have.
int current_device();
// As cudaSetDevice: from CUDA 12.0 on it makes the device's context ("Runtime
// initialization" of the CUDA programming guide, and the notes of cudaSetDevice).
void set_device(int ordinal);

// The contexts of the calling thread, as the driver keeps them. A call of the runtime
// that finds none makes that of the thread's device, which is 0 unless it was set: so a
// thread that only asks for the state of a stream makes a context on GPU 0.
bool has_context();
void push_context(int ordinal);
// -1: there was none.
int pop_context();

// The runtime's own calls are forbidden inside a host function.
bool& in_host_function();

// cudaSuccess when the call may begin.
cudaError_t refusal(const call_rules& rules);

// Notes it as the thread's last error.
cudaError_t noted(cudaError_t result);

cudaError_t last_error(bool forget);

// Null for a handle that is none.
stream_ptr stream_of(cudaStream_t handle);

// A call for the device `where()`, under the lock of its context, that leaves the
// thread's last error alone: the driver's functions know of none.
template <class Where, class Body>
cudaError_t attempt_at(Where where, const call_rules& rules, Body body) {
  if (const auto refused = refusal(rules); refused != cudaSuccess) return refused;
  std::optional<driver_lock> locked;
  if (!rules.lockless) locked.emplace(where());
  if (!rules.contextless && !has_context()) set_device(current_device());
  auto result = cudaSuccess;
  try {
    result = body();
  } catch (const std::bad_alloc&) {
    result = cudaErrorMemoryAllocation;
  } catch (const std::system_error&) {
    result = cudaErrorOperatingSystem;
  }
  const auto broken = machine::here().broken();
  return rules.when_broken && broken != cudaSuccess ? broken : result;
}

// The same for the thread's current device.
template <class Body>
cudaError_t attempt(const call_rules& rules, Body body) {
  return attempt_at(current_device, rules, body);
}

template <class Body>
cudaError_t enter(const call_rules& rules, Body body) {
  return noted(attempt(rules, body));
}

template <class Where, class Body>
cudaError_t enter_at(Where where, const call_rules& rules, Body body) {
  return noted(attempt_at(where, rules, body));
}

// Calls on a stream: body(stream) with the stream behind the handle.
template <class Body>
cudaError_t attempt_stream(const call_rules& rules, cudaStream_t handle, Body body) {
  const auto where = [handle] {
    const stream_ptr stream = stream_of(handle);
    return stream ? stream->device : current_device();
  };
  return attempt_at(where, rules, [&]() -> cudaError_t {
    const stream_ptr stream = stream_of(handle);
    return stream ? body(stream) : cudaErrorInvalidResourceHandle;
  });
}

template <class Body>
cudaError_t enter_stream(const call_rules& rules, cudaStream_t handle, Body body) {
  return noted(attempt_stream(rules, handle, body));
}

}  // namespace emulated
