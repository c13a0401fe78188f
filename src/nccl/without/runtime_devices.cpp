#include "nccl/runtime_devices.hpp"

#include <stdexcept>

namespace manyworlds::inline v0::detail {

namespace {

class no_devices final : public runtime_devices {
 public:
  void open(int, const device_options&,
            std::function<void(opened_device)> heard) override {
    opened_device none;
    none.why = cause::device_unavailable;
    none.text =
        "this build of the library has no GPU worlds: build it where the headers of CUDA "
        "and NCCL are installed";
    heard(std::move(none));
  }
  std::unique_ptr<backend> make_backend(device_backend_parts) override {
    throw std::logic_error("no device was opened");
  }
};

}  // namespace

std::unique_ptr<runtime_devices> runtime_devices::make() {
  return std::make_unique<no_devices>();
}

}  // namespace manyworlds::inline v0::detail
