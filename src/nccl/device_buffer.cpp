#include "manyworlds/nccl/device_buffer.hpp"

#include <fmt/format.h>

#include "nccl/cuda_error.hpp"
#include "nccl/pool_state.hpp"
#include "nccl/stream_facts.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

untyped_device_buffer::untyped_device_buffer(const device_pool& pool, std::size_t count,
                                             dtype type, device_stream on) {
  nccl::check_stream(on, "a device_buffer");
  // Any address does: the count and the type are what may be wrong.
  detail::check_view(this, count, type);
  void* data = nullptr;
  if (const std::size_t bytes = count * size_of(type); bytes > 0) {
    const nccl::cuda_library& cuda = pool.state_->cuda;
    const nccl::device_scope here(pool.device_);
    const auto asked = [&] {
      return fmt::format("a device_buffer of {} bytes on device {}", bytes, pool.device_);
    };
    nccl::check_not_captured(cuda, on, "a device_buffer");
    if (const auto error =
            cuda.cudaMallocFromPoolAsync(&data, bytes, pool.state_->pool, on.handle());
        error != cudaSuccess) {
      nccl::refuse(asked(), error);
    }
  }
  pool_ = pool.state_;
  view_ = device_view(data, count, type, on);
}

// An error is of the stream or the device: there is no caller to tell, and nothing left
// to give back.
void untyped_device_buffer::free() noexcept {
  if (!view_.data()) return;
  const nccl::device_scope here(pool_->device);
  (void)pool_->cuda.cudaFreeAsync(view_.data(), view_.stream().handle());
}

}  // namespace manyworlds::inline v0
