#include "capture.hpp"

#include <algorithm>
#include <utility>

namespace emulated {
namespace {

void join(horizon& into, const horizon& other) {
  for (const auto& [stream, steps] : other) {
    auto& known = into[stream];
    known = std::max(known, steps);
  }
}

// Every step of every stream came before the origin's end.
bool all_joined(const capture& ended) {
  const horizon& at_end = ended.seen.at(ended.origin);
  return std::all_of(ended.seen.begin(), ended.seen.end(), [&](const auto& each) {
    const auto known = at_end.find(each.first);
    return known != at_end.end() && known->second >= each.second.at(each.first);
  });
}

// Whether the capture forbids this thread calls that may wait for the device.
bool forbids_unsafe_calls(const capture& ongoing) {
  const bool own = ongoing.thread == std::this_thread::get_id() &&
                   ongoing.mode != cudaStreamCaptureModeRelaxed;
  switch (mode_of_this_thread()) {
    case cudaStreamCaptureModeGlobal:
      return own || ongoing.mode == cudaStreamCaptureModeGlobal;
    case cudaStreamCaptureModeThreadLocal:
      return own;
    default:
      return false;
  }
}

}  // namespace

cudaStreamCaptureMode& mode_of_this_thread() {
  thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

captures::capture_ptr captures::find(const stream& asked) const {
  const auto found = of_stream_.find(&asked);
  return found == of_stream_.end() ? nullptr : found->second;
}

void captures::forget(const capture& ended) {
  std::erase_if(of_stream_,
                [&](const auto& each) { return each.second.get() == &ended; });
}

cudaError_t captures::begin(const stream_ptr& origin, cudaStreamCaptureMode mode) {
  std::lock_guard hold(mutex_);
  if (find(*origin)) return cudaErrorIllegalState;
  auto begun = std::make_shared<capture>();
  begun->mode = mode;
  begun->thread = std::this_thread::get_id();
  begun->id = ++last_id_;
  begun->origin = origin.get();
  begun->recorded = std::make_shared<graph>();
  begun->seen[origin.get()][origin.get()] = 0;
  begun->streams.push_back(origin);
  of_stream_[origin.get()] = std::move(begun);
  return cudaSuccess;
}

cudaError_t captures::end(const stream_ptr& origin, graph_ptr& recorded) {
  // Destroyed last, without the lock: its nodes' owners may call us.
  capture_ptr ended;
  std::lock_guard hold(mutex_);
  ended = find(*origin);
  if (!ended) return cudaErrorIllegalState;
  if (ended->origin != origin.get()) {
    ended->invalid = true;
    return cudaErrorStreamCaptureUnmatched;
  }
  if (ended->mode != cudaStreamCaptureModeRelaxed &&
      ended->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  forget(*ended);
  if (ended->invalid) return cudaErrorStreamCaptureInvalidated;
  if (!all_joined(*ended)) return cudaErrorStreamCaptureUnjoined;
  recorded = ended->recorded;
  return cudaSuccess;
}

void captures::abandon(const stream& destroyed) {
  capture_ptr abandoned;
  std::lock_guard hold(mutex_);
  abandoned = find(destroyed);
  if (!abandoned) return;
  abandoned->invalid = true;
  if (abandoned->origin == &destroyed) forget(*abandoned);
}

capture_state captures::state_of(const stream& asked) const {
  std::lock_guard hold(mutex_);
  const auto found = find(asked);
  if (!found) return {};
  if (found->invalid) return {cudaStreamCaptureStatusInvalidated, 0, nullptr};
  return {cudaStreamCaptureStatusActive, found->id, found->recorded};
}

cudaError_t captures::add(const stream_ptr& to, const node_ptr& work, bool& captured) {
  std::lock_guard hold(mutex_);
  const auto found = find(*to);
  captured = found != nullptr;
  if (!found) return cudaSuccess;
  if (found->invalid) return cudaErrorStreamCaptureInvalidated;
  work->enter_graph();
  found->recorded->nodes.push_back(work);
  ++found->seen[to.get()][to.get()];
  return cudaSuccess;
}

cudaError_t captures::record(const stream_ptr& in, event_record& record, bool& captured) {
  std::lock_guard hold(mutex_);
  const auto found = find(*in);
  captured = found != nullptr;
  if (!found) return cudaSuccess;
  if (found->invalid) return cudaErrorStreamCaptureInvalidated;
  auto point = std::make_shared<capture_point>();
  point->of = found;
  point->seen = found->seen[in.get()];
  record = {nullptr, std::move(point)};
  return cudaSuccess;
}

cudaError_t captures::wait(const stream_ptr& waiting, const event_record& record,
                           bool& captured) {
  const auto other = record.captured ? record.captured->of.lock() : nullptr;
  std::lock_guard hold(mutex_);
  const auto mine = find(*waiting);
  captured = mine != nullptr || record.captured != nullptr;
  if (!captured) return cudaSuccess;
  if (mine && mine->invalid) return cudaErrorStreamCaptureInvalidated;
  if (mine && !record.captured) {
    // Of an event never recorded there is nothing to wait for.
    if (!record.reached) return cudaSuccess;
    mine->invalid = true;
    return cudaErrorStreamCaptureIsolation;
  }
  // Its capture has ended: only inside it did the record mean something.
  if (!other || of_stream_.count(other->origin) == 0) {
    if (mine) mine->invalid = true;
    return cudaErrorCapturedEvent;
  }
  if (other->invalid) return cudaErrorStreamCaptureInvalidated;
  if (mine && mine != other) {
    mine->invalid = other->invalid = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (!mine) {
    of_stream_[waiting.get()] = other;
    other->streams.push_back(waiting);
    other->seen[waiting.get()][waiting.get()] = 0;
  }
  join(other->seen[waiting.get()], record.captured->seen);
  return cudaSuccess;
}

cudaError_t captures::refuse(const stream& asked) {
  std::lock_guard hold(mutex_);
  const auto found = find(asked);
  if (!found) return cudaSuccess;
  if (found->invalid) return cudaErrorStreamCaptureInvalidated;
  found->invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t captures::refuse_unsafe_call() {
  auto result = cudaSuccess;
  std::lock_guard hold(mutex_);
  for (const auto& [stream, ongoing] : of_stream_) {
    if (!forbids_unsafe_calls(*ongoing)) continue;
    ongoing->invalid = true;
    result = cudaErrorStreamCaptureUnsupported;
  }
  return result;
}

cudaError_t captures::refuse(const event_record& asked) {
  if (!asked.captured) return cudaSuccess;
  const auto ongoing = asked.captured->of.lock();
  std::lock_guard hold(mutex_);
  if (ongoing) ongoing->invalid = true;
  return cudaErrorCapturedEvent;
}

bool captures::legacy_is_blocked(int device) const {
  std::lock_guard hold(mutex_);
  return std::any_of(of_stream_.begin(), of_stream_.end(), [&](const auto& each) {
    return each.first->device == device && each.first->blocking();
  });
}

cudaError_t captures::refuse_legacy(int device) {
  auto result = cudaSuccess;
  std::lock_guard hold(mutex_);
  for (const auto& [stream, ongoing] : of_stream_) {
    if (stream->device != device || !stream->blocking()) continue;
    ongoing->invalid = true;
    result = cudaErrorStreamCaptureImplicit;
  }
  return result;
}

}  // namespace emulated
