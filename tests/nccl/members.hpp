// Several ranks in one process: each on a device and a registry of its own, all driven by
// one reactor.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "io/reactor_fixture.hpp"
#include "nccl/communicator.hpp"
#include "nccl/cuda_library.hpp"
#include "nccl/device_registry.hpp"
#include "nccl/nccl_library.hpp"
#include "support/eventually.hpp"

namespace manyworlds::testing {

using namespace std::chrono_literals;

struct done_work final : work {
  done_work() : work([](work& w) noexcept { ++static_cast<done_work&>(w).times; }) {}
  int times = 0;
};

/// Quick to give up.
inline device_options quick_options() {
  device_options options;
  options.create = 10s;
  options.quiesce = 5s;
  options.release = 5s;
  return options;
}

class nccl_member {
 public:
  nccl_member(reactor& home, int device, const device_options& options)
      : home_(home), registry_(std::make_unique<nccl::device_registry>()) {
    make(device, options);
  }

  /// Another communicator on the same device.
  void make(int device, const device_options& options) {
    auto opened = registry_->open(device, options);
    if (auto* refused = std::get_if<nccl::error_message>(&opened)) FAIL(refused->text);
    device_ = std::get<std::shared_ptr<nccl::device>>(opened);
    communicator_ =
        std::make_unique<nccl::communicator>(device_, home_, options, "tested", 1);
  }

  nccl::communicator& operator*() { return *communicator_; }
  nccl::communicator* operator->() { return communicator_.get(); }
  nccl::device& device() { return *device_; }
  nccl::device_registry& registry() { return *registry_; }

  void drop_communicator() { communicator_ = nullptr; }
  void drop_device() { device_ = nullptr; }
  void end() {
    communicator_ = nullptr;
    device_ = nullptr;
    registry_ = nullptr;
  }

  /// An all-reduce of one number in place, as a world would launch it.
  bool all_reduce(float* number) {
    const auto& nccl = nccl::nccl_library::get();
    if (!communicator_->gate()->enter()) return false;
    const auto result =
        nccl.ncclAllReduce(number, number, 1, ncclFloat32, ncclSum,
                           communicator_->handle(), communicator_->stream());
    const auto marked = communicator_->completions()->mark(++marks_);
    communicator_->gate()->leave();
    return result == ncclSuccess && marked == cudaSuccess;
  }
  bool has_reached_all() { return communicator_->completions()->reached() == marks_; }

  done_work done;

 private:
  reactor& home_;
  std::unique_ptr<nccl::device_registry> registry_;
  std::shared_ptr<nccl::device> device_;
  std::unique_ptr<nccl::communicator> communicator_;
  std::uint64_t marks_ = 0;
};

/// On the first devices, as many as there are members.
class nccl_members {
 public:
  explicit nccl_members(int count, const device_options& options = quick_options())
      : home_(engine_kind::epoll) {
    for (int rank = 0; rank < count; ++rank) {
      each_.push_back(std::make_unique<nccl_member>(home_, rank, options));
    }
  }
  ~nccl_members() {
    // On its own thread, as a runtime would end each.
    for (auto& each : each_) each->drop_communicator();
    each_.clear();
    home_.get().close();
  }

  reactor_fixture& home() { return home_; }
  nccl_member& operator[](int rank) { return *each_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int count() const { return static_cast<int>(each_.size()); }

  /// Turns the reactor until `condition()`, for what posts nothing.
  template <class Condition>
  void await(Condition condition, std::chrono::nanoseconds limit = 20s) {
    REQUIRE(eventually(
        [&] {
          while (home_.get().turn()) {}
          return condition();
        },
        limit));
  }

  ncclUniqueId make_id() {
    nccl_member& first = *each_.front();
    const int before = first.done.times;
    first->make_unique_id(first.done);
    home_.run_until([&] { return first.done.times > before; });
    REQUIRE(first->error().text.empty());
    return first->unique_id();
  }
  void form() {
    const ncclUniqueId id = make_id();
    for_each_done(
        [&](nccl_member& each, int rank) { each->create(id, rank, count(), each.done); });
    for (int rank = 0; rank < count(); ++rank) {
      REQUIRE((*this)[rank]->error().text == "");
      REQUIRE((*this)[rank]->is_ready());
    }
  }
  /// Starts something with each member's `done`, and waits for all.
  template <class Start>
  void for_each_done(Start start) {
    std::vector<int> before;
    for (int rank = 0; rank < count(); ++rank) {
      before.push_back((*this)[rank].done.times);
      start((*this)[rank], rank);
    }
    home_.run_until([&] {
      for (int rank = 0; rank < count(); ++rank) {
        if ((*this)[rank].done.times == before[static_cast<std::size_t>(rank)])
          return false;
      }
      return true;
    });
  }
  void quiesce() {
    for_each_done([](nccl_member& each, int) { each->quiesce(each.done); });
  }

 private:
  reactor_fixture home_;
  std::vector<std::unique_ptr<nccl_member>> each_;
};

/// Device memory that the emulation lets the host read.
class device_number {
 public:
  explicit device_number(float value) {
    const auto& cuda = nccl::cuda_library::get();
    REQUIRE(cuda.cudaHostAlloc(&at_, sizeof value, cudaHostAllocMapped) == cudaSuccess);
    *get() = value;
  }
  device_number(const device_number&) = delete;
  device_number& operator=(const device_number&) = delete;
  ~device_number() { (void)nccl::cuda_library::get().cudaFreeHost(at_); }

  float* get() { return static_cast<float*>(at_); }

 private:
  void* at_ = nullptr;
};

}  // namespace manyworlds::testing
