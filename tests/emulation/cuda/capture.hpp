// Streams that are being captured into graphs.
#pragma once

#include <driver_types.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "event.hpp"
#include "node.hpp"
#include "stream.hpp"

namespace emulated {

struct graph {
  // In the order of their capture, which is one that their dependencies allow.
  std::vector<node_ptr> nodes;
};

using graph_ptr = std::shared_ptr<graph>;

// What a captured stream has waited for: for each stream of the capture, how many of its
// steps.
using horizon = std::map<const stream*, std::size_t>;

struct capture {
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  unsigned long long id;
  const stream* origin;
  graph_ptr recorded;
  bool invalid = false;
  std::map<const stream*, horizon> seen;
  // Keeps the streams' addresses theirs.
  std::vector<stream_ptr> streams;
};

// An event's record in a capture.
class capture_point {
 public:
  std::weak_ptr<capture> of;
  horizon seen;
};

struct capture_state {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  graph_ptr recorded;
};

// All captures of the process. Calls that give `captured` false and cudaSuccess have done
// nothing: the stream is in no capture.
class captures {
 public:
  cudaError_t begin(const stream_ptr& origin, cudaStreamCaptureMode mode);
  // Ends the capture also when it fails; the graph is empty then.
  cudaError_t end(const stream_ptr& origin, graph_ptr& recorded);
  // The stream is destroyed: what it began is given up.
  void abandon(const stream& destroyed);
  capture_state state_of(const stream& asked) const;

  cudaError_t add(const stream_ptr& to, const node_ptr& work, bool& captured);
  cudaError_t record(const stream_ptr& in, event_record& record, bool& captured);
  cudaError_t wait(const stream_ptr& waiting, const event_record& record, bool& captured);

  // A call that a capture forbids, of this stream or because it may wait for the device:
  // fails and spoils the captures that forbid it.
  cudaError_t refuse(const stream& asked);
  cudaError_t refuse_unsafe_call();
  // Of an event that was recorded in a capture: outside it means nothing to ask.
  cudaError_t refuse(const event_record& asked);
  // The legacy stream would depend on a captured blocking stream.
  cudaError_t refuse_legacy(int device);
  bool legacy_is_blocked(int device) const;

 private:
  using capture_ptr = std::shared_ptr<capture>;

  capture_ptr find(const stream& asked) const;
  void forget(const capture& ended);

  mutable std::mutex mutex_;
  std::map<const stream*, capture_ptr> of_stream_;
  unsigned long long last_id_ = 0;
};

// cudaThreadExchangeStreamCaptureMode's.
cudaStreamCaptureMode& mode_of_this_thread();

}  // namespace emulated
