// An event: what its last record stands for.
#pragma once

#include <driver_types.h>

#include <memory>
#include <mutex>
#include <utility>

#include "moment.hpp"

namespace emulated {

class capture_point;

// A record in a stream's work, or in a capture; of an event never recorded, neither.
struct event_record {
  moment_ptr reached;
  std::shared_ptr<const capture_point> captured;
};

class event {
 public:
  event(int device_, unsigned flags_) : device(device_), flags(flags_) {}

  const int device;
  const unsigned flags;

  bool timed() const { return (flags & cudaEventDisableTiming) == 0; }

  event_record latest() const {
    std::lock_guard hold(mutex_);
    return latest_;
  }
  void record(event_record next) {
    std::lock_guard hold(mutex_);
    latest_ = std::move(next);
  }

 private:
  mutable std::mutex mutex_;
  event_record latest_;
};

using event_ptr = std::shared_ptr<event>;

}  // namespace emulated
