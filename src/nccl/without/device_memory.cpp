// Of objects that cannot be made nothing else is ever called.
#include "manyworlds/nccl/copy.hpp"
#include "manyworlds/nccl/device_buffer.hpp"
#include "manyworlds/nccl/device_count.hpp"
#include "manyworlds/nccl/owned_stream.hpp"
#include "manyworlds/nccl/pinned_pool.hpp"
#include "nccl/without/no_cuda.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace detail::nccl {

pinned_block allocate(pinned_state&, std::size_t) { refuse("pinned memory"); }
void free(pinned_state&, pinned_block) noexcept {}

}  // namespace detail::nccl

int device_count() { nccl::refuse("looking for GPUs"); }

device_pool::device_pool(int) { nccl::refuse("a device_pool"); }
std::size_t device_pool::used() const { nccl::refuse("a device_pool"); }
std::size_t device_pool::held() const { nccl::refuse("a device_pool"); }
void device_pool::trim(std::size_t) const { nccl::refuse("a device_pool"); }

untyped_device_buffer::untyped_device_buffer(const device_pool&, std::size_t, dtype,
                                             device_stream) {
  nccl::refuse("a device_buffer");
}
void untyped_device_buffer::free() noexcept {}

owned_stream::owned_stream(int, int) { nccl::refuse("a stream"); }
void owned_stream::destroy() noexcept {}

pinned_pool::pinned_pool(pinned_pool_options) { nccl::refuse("a pinned_pool"); }
std::size_t pinned_pool::held() const noexcept { return 0; }
std::size_t pinned_pool::used() const noexcept { return 0; }
void pinned_pool::trim() const noexcept {}

executor& stream_wait::await_home() const { nccl::refuse("waiting for a stream"); }
stream_wait::~stream_wait() = default;
void stream_wait::begin(continuation&, const nccl::copy_plan*) {
  nccl::refuse("waiting for a stream");
}
bool stream_wait::await_cancel() noexcept { return false; }
bool stream_wait::await_must_resume() const noexcept { return true; }
void stream_wait::await_resume() const {}

}  // namespace manyworlds::inline v0
