// Runtime devices: the GPUs of one runtime, and the backends of its worlds on them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "host/host_backend.hpp"
#include "io/reactor.hpp"
#include "link/data_channel.hpp"
#include "manyworlds/failure.hpp"
#include "manyworlds/nccl/device_options.hpp"

namespace manyworlds::inline v0::detail {

/// Holds a device with a share of its multiprocessors, until the last copy is gone; or
/// says why there is none.
class opened_device {
 public:
  std::shared_ptr<void> device;
  enum cause why = cause::none;
  std::string text;
};

/// Holds what a backend of a world on a device is made of.
class device_backend_parts {
 public:
  device_backend_parts(reactor& at, backend_listener& told) noexcept
      : home(at), events(told) {}

  reactor& home;
  backend_listener& events;
  world_name name = {};
  std::uint64_t epoch = 0;
  rank_t rank = 0;
  host_backend_options host = {};
  device_options on_device = {};
  std::vector<data_channel> connections;
  std::shared_ptr<void> device;
};

/// Knows nothing of other runtimes' devices (law 12). Thread-safe. Ends after all its
/// worlds; then it waits for communicators that are being freed, within limits.
class runtime_devices {
 public:
  [[nodiscard]] static std::unique_ptr<runtime_devices> make();
  runtime_devices() = default;
  runtime_devices(const runtime_devices&) = delete;
  runtime_devices& operator=(const runtime_devices&) = delete;
  virtual ~runtime_devices() = default;

  /// Loads the libraries, makes the device's context and looks whether the world may be
  /// on it: on another thread, which calls `heard` once, or before this returns.
  virtual void open(int device, const device_options& options,
                    std::function<void(opened_device)> heard) = 0;
  /// Makes a backend. Precondition: the device was opened here. Thread: the home
  /// reactor's.
  [[nodiscard]] virtual std::unique_ptr<backend> make_backend(
      device_backend_parts parts) = 0;
};

}  // namespace manyworlds::inline v0::detail
