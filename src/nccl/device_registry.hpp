// Device registry: the GPUs of one runtime.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <mutex>
#include <variant>

#include "manyworlds/nccl/device_options.hpp"
#include "nccl/device.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Thread-safe. Its end waits for the communicators that are being freed, as long as
/// their own options allow, and no longer; what is stuck is left behind. It ends after
/// the last communicator is released, and not on a helper thread.
class device_registry {
 public:
  device_registry();
  device_registry(const device_registry&) = delete;
  device_registry& operator=(const device_registry&) = delete;
  ~device_registry();

  /// Returns a device with a share of its multiprocessors, as the options say. May
  /// block for seconds, as it loads the libraries and makes the context. Thread: a
  /// helper.
  [[nodiscard]] std::variant<std::shared_ptr<device>, error_message> open(
      int ordinal, const device_options& options);

  /// Returns the threads of all its devices.
  [[nodiscard]] helper_threads& helpers() noexcept { return *helpers_; }

  /// Longest wait for what is being freed when the registry ends.
  static constexpr duration longest_end = std::chrono::seconds(30);

 private:
  [[nodiscard]] std::variant<std::shared_ptr<device>, error_message> find(int ordinal);

  const pid_t process_;
  const std::shared_ptr<helper_threads> helpers_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<device>> devices_;
};

}  // namespace manyworlds::inline v0::detail::nccl
