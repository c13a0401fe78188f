#include "nccl/runtime_devices.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "nccl/device_registry.hpp"
#include "nccl/nccl_backend.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// For a driver that does not answer, when the runtime ends.
constexpr duration longest_opening = std::chrono::seconds(10);

/// Calls that have not returned. Who makes one holds it.
class call_count {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    ++running_;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    --running_;
    ended_.notify_all();
  }
  /// False if some have not returned by then.
  [[nodiscard]] bool await_none(duration limit) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, limit, [this] { return running_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  int running_ = 0;
};

class cuda_devices final : public runtime_devices {
 public:
  ~cuda_devices() override {
    // A thread that is stuck in the driver may come back and look at it: it is leaked.
    if (!openings_->await_none(longest_opening)) (void)registry_.release();
  }

  void open(int device, const device_options& options,
            std::function<void(opened_device)> heard) override {
    openings_->begin();
    const bool taken = registry_->helpers().post(
        [registry = registry_.get(), openings = openings_, device, options, heard] {
          opened_device opened;
          auto found = registry->open(device, options);
          openings->end();
          if (auto* wrong = std::get_if<nccl::error_message>(&found)) {
            opened.why = wrong->why;
            opened.text = std::move(wrong->text);
          } else {
            opened.device = std::get<0>(std::move(found));
          }
          heard(std::move(opened));
        });
    if (taken) return;
    openings_->end();
    opened_device none;
    none.why = cause::out_of_resources;
    none.text = "no thread could be started to open the device";
    heard(std::move(none));
  }

  std::unique_ptr<backend> make_backend(device_backend_parts parts) override {
    nccl::nccl_backend_options options;
    options.name = parts.name;
    options.epoch = parts.epoch;
    options.host = parts.host;
    options.device = parts.on_device;
    return std::make_unique<nccl::nccl_backend>(
        parts.home, parts.events, options, parts.rank, std::move(parts.connections),
        std::static_pointer_cast<nccl::device>(parts.device));
  }

 private:
  std::unique_ptr<nccl::device_registry> registry_ =
      std::make_unique<nccl::device_registry>();
  /// Of `registry_->open`.
  std::shared_ptr<call_count> openings_ = std::make_shared<call_count>();
};

}  // namespace

std::unique_ptr<runtime_devices> runtime_devices::make() {
  return std::make_unique<cuda_devices>();
}

}  // namespace manyworlds::inline v0::detail
