// Copies and fills. What a copy of pageable memory waits for is as "API synchronization
// behavior" of the CUDA runtime's documents says.
#include <cuda_runtime_api.h>

#include <cstring>
#include <vector>

#include "entry.hpp"
#include "submit.hpp"

using namespace emulated;

namespace {

enum class place { pageable, pinned, device };

place place_of(const void* pointer) {
  const auto block = machine::here().memory.find(pointer);
  if (!block) return place::pageable;
  return block->kind == memory_kind::device ? place::device : place::pinned;
}

struct transfer {
  void* to;
  const void* from;
  std::size_t size;
  place to_place;
  place from_place;
};

bool is_device_side(const void* pointer, place where, std::size_t size) {
  return where != place::pageable && machine::here().memory.holds(pointer, size);
}

// Whether the memory is where the direction says. Pinned memory is on both sides.
bool fits(const transfer& copy, cudaMemcpyKind kind) {
  const bool to_device =
      kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device =
      kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  // Known memory is copied within its bounds, whatever the direction.
  const bool check_to = to_device || copy.to_place != place::pageable;
  const bool check_from = from_device || copy.from_place != place::pageable;
  return (!check_to || is_device_side(copy.to, copy.to_place, copy.size)) &&
         (!check_from || is_device_side(copy.from, copy.from_place, copy.size)) &&
         (kind == cudaMemcpyDefault || to_device || copy.to_place != place::device) &&
         (kind == cudaMemcpyDefault || from_device || copy.from_place != place::device);
}

cudaError_t described(void* to, const void* from, std::size_t size, cudaMemcpyKind kind,
                      transfer& copy) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
    return cudaErrorInvalidMemcpyDirection;
  if (to == nullptr || from == nullptr) return cudaErrorInvalidValue;
  copy = {to, from, size, place_of(to), place_of(from)};
  return fits(copy, kind) ? cudaSuccess : cudaErrorInvalidValue;
}

node_ptr copying(const transfer& copy) {
  return std::make_shared<node>([copy] { std::memmove(copy.to, copy.from, copy.size); });
}

// Pageable memory is read before the call returns.
node_ptr copying_from_staged(const transfer& copy) {
  const auto* begin = static_cast<const unsigned char*>(copy.from);
  auto staged = std::make_shared<std::vector<unsigned char>>(begin, begin + copy.size);
  return std::make_shared<node>(
      [copy, staged] { std::memcpy(copy.to, staged->data(), copy.size); });
}

cudaError_t copy_in_order(const transfer& copy, const stream_ptr& on) {
  if (copy.to_place != place::pageable) {
    const bool staged = copy.from_place == place::pageable;
    return submit_kernel(on, staged ? copying_from_staged(copy) : copying(copy));
  }
  // Pageable memory is written before the call returns.
  if (const auto refused = refuse_if_captured(on); refused != cudaSuccess) return refused;
  const auto result = submit_kernel(on, copying(copy));
  return result == cudaSuccess ? wait_on_host(mark(on)) : result;
}

cudaError_t fill(void* begin, int value, std::size_t size, const stream_ptr& on) {
  if (size == 0) return cudaSuccess;
  if (!machine::here().memory.holds(begin, size)) return cudaErrorInvalidValue;
  // A fill is a kernel of the driver's, a copy the copy engine's.
  static constexpr char kernel = 0;
  const auto loaded = load_kernel(machine::here().on(on->device), &kernel);
  if (loaded != cudaSuccess) return loaded;
  return submit_kernel(on,
                       std::make_shared<node>([=] { std::memset(begin, value, size); }));
}

}  // namespace

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return enter_stream(ordinary, stream, [&](const stream_ptr& on) {
    if (size == 0) return cudaSuccess;
    transfer copy;
    const auto refused = described(to, from, size, kind, copy);
    return refused == cudaSuccess ? copy_in_order(copy, on) : refused;
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  return enter_stream(unsafe, cudaStreamLegacy, [&](const stream_ptr& legacy) {
    if (size == 0) return cudaSuccess;
    transfer copy;
    auto result = described(to, from, size, kind, copy);
    if (result == cudaSuccess) result = copy_in_order(copy, legacy);
    // From device to device the host does not wait.
    const bool on_device =
        copy.to_place == place::device && copy.from_place == place::device;
    return result == cudaSuccess && !on_device ? wait_on_host(mark(legacy)) : result;
  });
}

cudaError_t cudaMemsetAsync(void* begin, int value, size_t size, cudaStream_t stream) {
  return enter_stream(ordinary, stream,
                      [&](const stream_ptr& on) { return fill(begin, value, size, on); });
}

cudaError_t cudaMemset(void* begin, int value, size_t size) {
  return enter_stream(unsafe, cudaStreamLegacy, [&](const stream_ptr& legacy) {
    const auto result = fill(begin, value, size, legacy);
    const bool waits = result == cudaSuccess && place_of(begin) == place::pinned;
    return waits ? wait_on_host(mark(legacy)) : result;
  });
}
