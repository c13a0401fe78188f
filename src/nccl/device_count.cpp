#include "manyworlds/nccl/device_count.hpp"

#include "nccl/cuda_error.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

int device_count() {
  const char* const asked = "looking for GPUs";
  const nccl::cuda_library& cuda = nccl::cuda_for(asked);
  int devices = 0;
  const auto error = cuda.cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) return devices;
  // A later call's check would find it.
  (void)cuda.cudaGetLastError();
  nccl::refuse(asked, error == cudaSuccess ? cudaErrorNoDevice : error);
}

}  // namespace manyworlds::inline v0
