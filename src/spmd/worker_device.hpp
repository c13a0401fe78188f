// Worker device: the CUDA device of a worker, and the memory of its tensors there.
#pragma once

#include <memory>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/memory/tensor.hpp"
#include "manyworlds/nccl/device_pool.hpp"
#include "manyworlds/nccl/owned_stream.hpp"
#include "manyworlds/spmd/session_options.hpp"
#include "spmd/worker_meshes.hpp"

namespace manyworlds::inline v0::detail {

/// Returns the devices that the options name for the workers of a host; none if they name
/// none. Errors: std::invalid_argument for what is no list of `workers` devices or more,
/// and for a list without the backend that needs it.
[[nodiscard]] std::vector<int> device_list_of(const session_options& limits, int workers);

/// Copies a tensor into host memory. Thread: a reactor's, for what lies on a device.
/// Lifetime: the tensor outlives the await. Errors: those of `copy`.
[[nodiscard]] task<tensor> copy_to_host(const tensor& from);

/// A device with a stream and a pool of memory. Its tensors keep it.
class worker_device : public std::enable_shared_from_this<worker_device> {
 public:
  /// Takes the device of that worker; null if its session has none. It makes the context
  /// of the device, which takes a while. Errors: device_error, also if this process does
  /// not see that device.
  [[nodiscard]] static std::shared_ptr<worker_device> open(const worker_seat& seat);

  [[nodiscard]] int number() const noexcept { return stream_.device(); }
  [[nodiscard]] device_stream stream() const noexcept { return stream_; }
  /// Takes memory for a tensor. Contents are not set. Errors: device_error.
  [[nodiscard]] tensor make(const shape& of, dtype type);
  /// Copies a tensor to this device. Thread: a reactor's. Lifetime: both outlive the
  /// await. Errors: device_error.
  [[nodiscard]] task<tensor> copy_of(const tensor& from);
  /// Makes a tensor of zeros. Thread: a reactor's. Lifetime: it outlives the await.
  /// Errors: device_error.
  [[nodiscard]] task<tensor> zeros(shape of, dtype type);

  // Public for std::make_shared.
  explicit worker_device(int number) : stream_(number), pool_(number) {}

 private:
  const owned_stream stream_;
  const device_pool pool_;
};

}  // namespace manyworlds::inline v0::detail
