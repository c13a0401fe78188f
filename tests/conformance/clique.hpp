// The ranks of one communicator in one process, each on a device of its own.
#pragma once

#include "nccl_support.hpp"

#include <memory>
#include <vector>

namespace conformance {

class clique {
 public:
  explicit clique(int count) : comms_(static_cast<std::size_t>(count)) {
    REQUIRE(ncclCommInitAll(comms_.data(), count, nullptr) == ncclSuccess);
    for (int r = 0; r < count; ++r) {
      cudaSetDevice(r);
      streams_.push_back(std::make_unique<device_stream>());
    }
  }
  ~clique() {
    ncclGroupStart();
    for (auto comm : comms_) ncclCommDestroy(comm);
    ncclGroupEnd();
    cudaSetDevice(0);
  }
  clique(const clique&) = delete;
  clique& operator=(const clique&) = delete;

  int count() const { return static_cast<int>(comms_.size()); }
  ncclComm_t comm(int r) const { return comms_[static_cast<std::size_t>(r)]; }
  const device_stream& stream(int r) const {
    return *streams_[static_cast<std::size_t>(r)];
  }

  /// One group with `call(rank, communicator, stream)` of each rank; then all streams are
  /// done.
  template <class Call>
  void all(Call call) const {
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int r = 0; r < count(); ++r) {
      cudaSetDevice(r);
      REQUIRE(call(r, comm(r), stream(r)) == ncclSuccess);
    }
    REQUIRE(ncclGroupEnd() == ncclSuccess);
    for (int r = 0; r < count(); ++r) REQUIRE(stream(r).finished());
  }

  /// A buffer on each rank's device, filled by `make(rank)`.
  template <class T, class Make>
  std::vector<std::unique_ptr<device_array<T>>> arrays(Make make) const {
    std::vector<std::unique_ptr<device_array<T>>> made;
    for (int r = 0; r < count(); ++r) {
      cudaSetDevice(r);
      made.push_back(std::make_unique<device_array<T>>(make(r)));
    }
    return made;
  }

 private:
  std::vector<ncclComm_t> comms_;
  std::vector<std::unique_ptr<device_stream>> streams_;
};

}  // namespace conformance
