#include "plan.hpp"

#include "../cuda/stream_hooks.h"
#include "collective.hpp"
#include "complaint.hpp"
#include "occupancy.hpp"
#include "settings.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

namespace nccl_emulation {

namespace {

class plan {
 public:
  plan(shared_communicator c, std::vector<task> tasks, bool captured)
      : c_(std::move(c)), tasks_(std::move(tasks)) {
    // Point-to-point after the collectives, as one set.
    std::stable_partition(tasks_.begin(), tasks_.end(),
                          [](const task& t) { return !t.point_to_point(); });
    if (!captured) ticket_ = c_->order.take();
  }
  // The stream of a broken device never runs it; the communicator must not wait for it
  // then.
  ~plan() {
    if (ticket_) c_->order.leave(*ticket_);
  }

  static void run(void* self) { static_cast<plan*>(self)->run_once(); }
  static void release(void* self) { delete static_cast<plan*>(self); }

 private:
  void run_once() {
    // A graph runs it again and again: its turn is that of the launch.
    const auto ticket = ticket_ ? *ticket_ : c_->order.take();
    ticket_.reset();
    run_in_turn(ticket);
    c_->order.leave(ticket);
  }

  void run_in_turn(std::uint64_t ticket) {
    if (c_->order.enter(ticket)) {
      const occupancy place{c_->device, ctas(), c_->cluster, *c_->flag};
      if (c_->torn || c_->closed) wait_for_abort(c_->cut());
      if (place.resident() && !c_->flag->raised()) return move();
    }
    spoil(0);
  }

  // Messages take as many channels as the next power of two (src/graph/paths.cc,
  // ncclTopoComputeP2pChannels).
  int ctas() const {
    const bool has_messages = tasks_.back().point_to_point();
    const auto most = static_cast<unsigned>(c_->max_ctas);
    return static_cast<int>(has_messages ? std::bit_ceil(most) : most);
  }

  // Up to 2.22 ranks of one process that reach each other's GPUs use each other's buffers
  // directly (2.18.3 src/transport/p2p.cc, P2P_DIRECT).
  bool is_reached(const task& t) const {
    if (chosen().version >= 22300) return true;
    for (int r = 0; r < c_->count; ++r) {
      if (r == c_->rank || !c_->in_this_process(r)) continue;
      const int device = c_->members[static_cast<std::size_t>(r)].device;
      for (const void* buffer : {t.from, static_cast<const void*>(t.to)}) {
        if (buffer == nullptr || cudaEmulatedReaches(device, buffer) != 0) continue;
        cudaEmulatedBreakDevice(device, cudaErrorIllegalAddress);
        return false;
      }
    }
    return true;
  }

  void move() {
    if (!std::all_of(tasks_.begin(), tasks_.end(),
                     [this](const task& t) { return is_reached(t); }))
      return;
    std::size_t next = 0;
    for (; next < tasks_.size() && !tasks_[next].point_to_point(); ++next) {
      if (run_collective(*c_, tasks_[next])) continue;
      c_->torn = true;
      return spoil(next);
    }
    const std::span rest{tasks_.begin() + static_cast<std::ptrdiff_t>(next),
                         tasks_.end()};
    if (rest.empty()) return;
    std::vector<bool> complete;
    if (run_point_to_point(*c_, rest, complete)) return;
    c_->torn = true;
    for (std::size_t i = 0; i < rest.size(); ++i)
      if (!complete[i]) spoil_one(rest[i]);
  }

  void spoil(std::size_t from) {
    for (std::size_t i = from; i < tasks_.size(); ++i) spoil_one(tasks_[i]);
  }

  // The event of an operation cut short completes with success; what it wrote is
  // anything.
  void spoil_one(const task& t) {
    constexpr int poison = 0xA5;
    void* written = t.written(*c_);
    if (chosen().poison && written != nullptr)
      std::memset(written, poison, t.written_bytes(*c_));
  }

  shared_communicator c_;
  std::vector<task> tasks_;
  std::optional<std::uint64_t> ticket_;
};

struct alone {
  shared_communicator c;
  task t;
  static void run(void* self) { reduce_alone(static_cast<alone*>(self)->t); }
  static void release(void* self) { delete static_cast<alone*>(self); }
};

ncclResult_t checked(cudaError_t error) {
  if (error == cudaSuccess) return ncclSuccess;
  return complain(ncclUnhandledCudaError,
                  std::string{"Cuda failure "} + cudaGetErrorString(error));
}

// Chains `later` behind what stands in `earlier` now.
ncclResult_t follow(cudaStream_t later, cudaStream_t earlier) {
  cudaEvent_t event;
  if (auto made = cudaEventCreateWithFlags(&event, cudaEventDisableTiming))
    return checked(made);
  auto result = checked(cudaEventRecord(event, earlier));
  if (result == ncclSuccess) result = checked(cudaStreamWaitEvent(later, event, 0));
  cudaEventDestroy(event);
  return result;
}

}  // namespace

ncclResult_t launch(const shared_communicator& c, std::vector<task> tasks) {
  if (tasks.empty()) return ncclSuccess;
  const auto stream = tasks.front().stream;
  std::vector<cudaStream_t> others;
  for (const auto& t : tasks)
    if (t.stream != stream) others.push_back(t.stream);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  if (auto result = checked(cudaStreamIsCapturing(stream, &capture))) return result;
  for (auto other : others)
    if (auto result = follow(stream, other)) return result;
  auto* made = new plan{c, std::move(tasks), capture != cudaStreamCaptureStatusNone};
  const auto error =
      cudaEmulatedEnqueueKeyed(stream, c.get(), &plan::run, made, &plan::release);
  if (error != cudaSuccess) {
    delete made;
    return checked(error);
  }
  for (auto other : others)
    if (auto result = follow(other, stream)) return result;
  return ncclSuccess;
}

cudaError_t load_plan(int device) { return cudaEmulatedLoadKernel(device, &plan::run); }

ncclResult_t launch_alone(const shared_communicator& c, const task& t) {
  if (t.op.kind < ncclNumOps) {
    if (t.to == t.from) return ncclSuccess;
    return checked(
        cudaMemcpyAsync(t.to, t.from, t.bytes(), cudaMemcpyDeviceToDevice, t.stream));
  }
  auto* made = new alone{c, t};
  const auto error = cudaEmulatedEnqueue(t.stream, &alone::run, made, &alone::release);
  if (error != cudaSuccess) delete made;
  return checked(error);
}

void wait_quiet(communicator& c) {
  c.order.wait_idle(nullptr);
  constexpr int glance_ms = 2;
  while (cudaEmulatedGraphsHolding(&c) != 0) sleep_for(glance_ms, {});
  c.order.wait_idle(nullptr);
}

}  // namespace nccl_emulation
