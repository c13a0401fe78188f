// cudaEvent*, and streams that wait for events.
#include <cuda_runtime_api.h>

#include <chrono>

#include "entry.hpp"
#include "submit.hpp"

using namespace emulated;

namespace {

constexpr unsigned known_flags =
    cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;

// body(event, its last record), of an event not recorded in a capture.
template <class Body>
cudaError_t enter_event(const call_rules& rules, cudaEvent_t handle, Body body) {
  const auto where = [handle] {
    const event_ptr asked = machine::here().events.find(handle);
    return asked ? asked->device : current_device();
  };
  return enter_at(where, rules, [&]() -> cudaError_t {
    const event_ptr asked = machine::here().events.find(handle);
    if (!asked) return cudaErrorInvalidResourceHandle;
    const event_record latest = asked->latest();
    const auto refused = machine::here().capturing.refuse(latest);
    return refused == cudaSuccess ? body(*asked, latest) : refused;
  });
}

// The record is the graph's to make, at each launch: visible outside of the capture.
cudaError_t record_at_launch(const event_ptr& recorded, const stream_ptr& in) {
  return submit(in, std::make_shared<node>([recorded] {
                  auto reached = std::make_shared<moment>();
                  reached->come();
                  recorded->record({reached, nullptr});
                }));
}

cudaError_t wait_at_launch(const event_ptr& awaited, const stream_ptr& in) {
  return submit(in, std::make_shared<node>([awaited] {
                  if (const auto reached = awaited->latest().reached) reached->wait();
                }));
}

bool is_captured(const stream& asked) {
  return machine::here().capturing.state_of(asked).status != cudaStreamCaptureStatusNone;
}

}  // namespace

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return enter(ordinary, [&] {
    const bool shared_and_timed =
        (flags & cudaEventInterprocess) != 0 && (flags & cudaEventDisableTiming) == 0;
    if (event == nullptr || (flags & ~known_flags) != 0 || shared_and_timed)
      return cudaErrorInvalidValue;
    *event = static_cast<cudaEvent_t>(machine::here().events.add(
        std::make_shared<emulated::event>(current_device(), flags)));
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return enter(freeing, [&] {
    return machine::here().events.remove(event) ? cudaSuccess
                                                : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream,
                                     unsigned int flags) {
  return enter_stream(ordinary, stream, [&](const stream_ptr& in) {
    const event_ptr recorded = machine::here().events.find(handle);
    if (!recorded || recorded->device != in->device)
      return cudaErrorInvalidResourceHandle;
    if ((flags & ~unsigned{cudaEventRecordExternal}) != 0) return cudaErrorInvalidValue;
    if (flags == cudaEventRecordExternal && is_captured(*in))
      return record_at_launch(recorded, in);
    if (is_legacy(*in)) {
      const auto refused = refuse_if_captured(in);
      if (refused != cudaSuccess) return refused;
    }
    event_record next;
    bool captured = false;
    const auto result = machine::here().capturing.record(in, next, captured);
    if (result != cudaSuccess) return result;
    if (!captured) next.reached = mark(in);
    recorded->record(next);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return enter_event(asking, handle, [](const event&, const event_record& latest) {
    if (const auto error = shown_by(latest.reached); error != cudaSuccess) return error;
    const bool pending = latest.reached && !latest.reached->has_come();
    return pending ? cudaErrorNotReady : cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return enter_event(unsafe, handle, [](const event&, const event_record& latest) {
    return latest.reached ? wait_on_host(latest.reached) : cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start,
                                 cudaEvent_t end) {
  return enter_event(unsafe, start, [&](const event& from, const event_record& begun) {
    const event_ptr to = machine::here().events.find(end);
    if (!to || !from.timed() || !to->timed()) return cudaErrorInvalidResourceHandle;
    const event_record ended = to->latest();
    if (ended.captured) return cudaErrorCapturedEvent;
    if (!begun.reached || !ended.reached) return cudaErrorInvalidResourceHandle;
    if (!begun.reached->has_come() || !ended.reached->has_come())
      return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(ended.reached->when() -
                                                             begun.reached->when())
                        .count();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle,
                                unsigned int flags) {
  return enter_stream(ordinary, stream, [&](const stream_ptr& waiting) {
    const event_ptr awaited = machine::here().events.find(handle);
    if (!awaited) return cudaErrorInvalidResourceHandle;
    if ((flags & ~unsigned{cudaEventWaitExternal}) != 0) return cudaErrorInvalidValue;
    if (flags == cudaEventWaitExternal && is_captured(*waiting))
      return wait_at_launch(awaited, waiting);
    const event_record latest = awaited->latest();
    bool captured = false;
    const auto result = machine::here().capturing.wait(waiting, latest, captured);
    if (result != cudaSuccess || captured) return result;
    const moment_ptr reached = latest.reached;
    if (!reached || reached->has_come()) return cudaSuccess;
    return submit(waiting, std::make_shared<node>([reached] { reached->wait(); }));
  });
}
