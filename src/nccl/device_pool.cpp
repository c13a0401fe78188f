#include "manyworlds/nccl/device_pool.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "nccl/cuda_error.hpp"
#include "nccl/pool_state.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace detail::nccl {

pool_state::pool_state(const cuda_library& c, int on) : cuda(c), device(on) {
  const std::string asked = fmt::format("a device_pool on device {}", device);
  const device_scope here(device);
  int has_pools = 0;
  if (const auto error = cuda.cudaDeviceGetAttribute(
          &has_pools, cudaDevAttrMemoryPoolsSupported, device);
      error != cudaSuccess) {
    refuse(asked, error);
  }
  if (!has_pools) {
    throw device_error(asked + ": the device has no stream-ordered memory pools");
  }
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  // One by one: a member of `location` is in an unnamed union from CUDA 13.1 on.
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  if (const auto error = cuda.cudaMemPoolCreate(&pool, &properties);
      error != cudaSuccess) {
    refuse(asked, error);
  }
  std::uint64_t keeps = UINT64_MAX;
  (void)cuda.cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keeps);
  admit_peers();
}

// NCCL up to 2.22 reads and writes the buffers of ranks in one process directly, and
// memory of a pool is out of other devices' reach unless they are admitted.
void pool_state::admit_peers() noexcept {
  int devices = 0;
  if (cuda.cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
  for (int peer = 0; peer < devices; ++peer) {
    int reaches = 0;
    if (peer == device ||
        cuda.cudaDeviceCanAccessPeer(&reaches, peer, device) != cudaSuccess || !reaches) {
      continue;
    }
    cudaMemAccessDesc access = {};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = peer;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    (void)cuda.cudaMemPoolSetAccess(pool, &access, 1);
  }
  // One that cannot be admitted is none that must be.
  (void)cuda.cudaGetLastError();
}

pool_state::~pool_state() {
  const device_scope here(device);
  (void)cuda.cudaMemPoolDestroy(pool);
}

namespace {

std::size_t attribute(const pool_state& of, cudaMemPoolAttr which) {
  const device_scope here(of.device);
  std::uint64_t value = 0;
  if (const auto error = of.cuda.cudaMemPoolGetAttribute(of.pool, which, &value);
      error != cudaSuccess) {
    refuse(fmt::format("the size of a device_pool on device {}", of.device), error);
  }
  return value;
}

}  // namespace

}  // namespace detail::nccl

device_pool::device_pool(int device)
    : state_(std::make_shared<nccl::pool_state>(
          nccl::cuda_on(device, fmt::format("a device_pool on device {}", device)),
          device)),
      device_(device) {}

std::size_t device_pool::used() const {
  return nccl::attribute(*state_, cudaMemPoolAttrUsedMemCurrent);
}

std::size_t device_pool::held() const {
  return nccl::attribute(*state_, cudaMemPoolAttrReservedMemCurrent);
}

void device_pool::trim(std::size_t keep) const {
  const nccl::device_scope here(device_);
  if (const auto error = state_->cuda.cudaMemPoolTrimTo(state_->pool, keep);
      error != cudaSuccess) {
    nccl::refuse(fmt::format("trimming a device_pool on device {}", device_), error);
  }
}

}  // namespace manyworlds::inline v0
