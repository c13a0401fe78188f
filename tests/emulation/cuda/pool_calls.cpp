// Stream-ordered memory, and its pools.
#include <cuda_runtime_api.h>

#include "entry.hpp"
#include "settings.hpp"
#include "submit.hpp"

using namespace emulated;

namespace {

// Whether the attribute's value is an int; other values are 64-bit words.
bool is_switch(cudaMemPoolAttr attribute) {
  return attribute >= cudaMemPoolReuseFollowEventDependencies &&
         attribute <= cudaMemPoolReuseAllowInternalDependencies;
}

// Of the statistics only the high marks can be set, to zero.
bool is_high_mark(cudaMemPoolAttr attribute) {
  return attribute == cudaMemPoolAttrReservedMemHigh ||
         attribute == cudaMemPoolAttrUsedMemHigh;
}

std::uint64_t word(cudaMemPoolAttr attribute, const void* value) {
  return is_switch(attribute)
             ? static_cast<std::uint64_t>(*static_cast<const int*>(value))
             : *static_cast<const std::uint64_t*>(value);
}

std::uint64_t statistic_or_choice(const memory_pool& pool, cudaMemPoolAttr attribute) {
  switch (attribute) {
    case cudaMemPoolAttrReservedMemCurrent:
    case cudaMemPoolAttrUsedMemCurrent:
      return pool.used;
    case cudaMemPoolAttrReservedMemHigh:
    case cudaMemPoolAttrUsedMemHigh:
      return pool.most_used;
    default: {
      const auto chosen = pool.chosen.find(attribute);
      if (chosen != pool.chosen.end()) return chosen->second;
      return is_switch(attribute) ? 1 : 0;
    }
  }
}

// body(pool), with the pool's lock held.
template <class Body>
cudaError_t enter_pool(cudaMemPool_t handle, Body body) {
  return enter(ordinary, [&]() -> cudaError_t {
    const pool_ptr pool = machine::here().pools.find(handle);
    if (!pool) return cudaErrorInvalidValue;
    std::lock_guard hold(pool->mutex);
    return body(*pool);
  });
}

cudaError_t allocate(void** pointer, std::size_t size, const pool_ptr& pool,
                     const stream_ptr& on) {
  if (pointer == nullptr || !pool) return cudaErrorInvalidValue;
  const auto captured = machine::here().capturing.state_of(*on).status;
  if (captured != cudaStreamCaptureStatusNone) return cudaErrorNotSupported;
  *pointer = nullptr;
  if (size == 0) return cudaSuccess;
  *pointer =
      machine::here().memory.allocate(size, memory_kind::device, pool->device, pool);
  return *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

}  // namespace

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int ordinal) {
  return enter(ordinary, [&] {
    if (!machine::here().has(ordinal)) return cudaErrorInvalidDevice;
    *pool = static_cast<cudaMemPool_t>(
        static_cast<void*>(machine::here().default_pool(ordinal).get()));
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* wanted) {
  return enter(ordinary, [&] {
    if (pool == nullptr || wanted == nullptr ||
        wanted->allocType != cudaMemAllocationTypePinned ||
        wanted->location.type != cudaMemLocationTypeDevice ||
        !machine::here().has(wanted->location.id))
      return cudaErrorInvalidValue;
    *pool = static_cast<cudaMemPool_t>(machine::here().pools.add(
        std::make_shared<memory_pool>(wanted->location.id, false)));
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t handle) {
  return enter(freeing, [&] {
    const pool_ptr pool = machine::here().pools.find(handle);
    if (!pool || pool->is_default) return cudaErrorInvalidValue;
    machine::here().pools.remove(handle);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute,
                                    void* value) {
  return enter_pool(handle, [&](memory_pool& pool) {
    if (is_high_mark(attribute)) {
      if (word(attribute, value) != 0) return cudaErrorInvalidValue;
      pool.most_used = pool.used;
    } else if (is_switch(attribute) || attribute == cudaMemPoolAttrReleaseThreshold) {
      pool.chosen[attribute] = word(attribute, value);
    } else {
      return cudaErrorInvalidValue;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute,
                                    void* value) {
  return enter_pool(handle, [&](memory_pool& pool) {
    const auto found = statistic_or_choice(pool, attribute);
    if (is_switch(attribute)) {
      *static_cast<int*>(value) = static_cast<int>(found);
    } else {
      *static_cast<std::uint64_t*>(value) = found;
    }
    return cudaSuccess;
  });
}

// "Controls visibility of pools between devices": cudaDeviceEnablePeerAccess does nothing
// for memory of a pool (CUDA programming guide, "Physical page caching behavior ...
// Device Accessibility for Multi-GPU Support").
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t handle, const cudaMemAccessDesc* list,
                                 size_t count) {
  return enter_pool(handle, [&](memory_pool& pool) {
    for (size_t i = 0; i < count; ++i) {
      const cudaMemAccessDesc& each = list[i];
      if (each.location.type != cudaMemLocationTypeDevice ||
          !machine::here().has(each.location.id))
        return cudaErrorInvalidValue;
      if (each.location.id != pool.device && !chosen().reaches_peers)
        return cudaErrorInvalidDevice;
      if (each.flags == cudaMemAccessFlagsProtReadWrite) {
        pool.admitted.insert(each.location.id);
      } else {
        pool.admitted.erase(each.location.id);
      }
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, size_t) {
  return enter_pool(handle, [](memory_pool&) { return cudaSuccess; });
}

cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t size, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  return enter_stream(ordinary, stream, [&](const stream_ptr& on) {
    return allocate(pointer, size, machine::here().pools.find(pool), on);
  });
}

cudaError_t cudaMallocAsync(void** pointer, size_t size, cudaStream_t stream) {
  return enter_stream(ordinary, stream, [&](const stream_ptr& on) {
    return allocate(pointer, size, machine::here().default_pool(on->device), on);
  });
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return enter_stream(ordinary, stream, [&](const stream_ptr& on) {
    if (pointer == nullptr) return cudaSuccess;
    memory_map& memory = machine::here().memory;
    const auto captured = machine::here().capturing.state_of(*on).status;
    if (captured != cudaStreamCaptureStatusNone) return cudaErrorNotSupported;
    if (!memory.begin_free(pointer)) return cudaErrorInvalidValue;
    return submit(on,
                  std::make_shared<node>([&memory, pointer] { memory.free(pointer); }));
  });
}
