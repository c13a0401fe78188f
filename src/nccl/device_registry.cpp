#include "nccl/device_registry.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <string>
#include <utility>

#include "io/system_environment.hpp"
#include "nccl/cuda_library.hpp"
#include "nccl/nccl_library.hpp"
#include "nccl/ranges.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

/// For threads that have something left to do, but nothing of the device's.
constexpr std::chrono::seconds last_patience(1);

error_message unavailable(std::string text) {
  return {cause::device_unavailable, std::move(text)};
}

std::string driver_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

error_message no_driver(const cuda_library& cuda) {
  int driver = 0;
  int runtime = 0;
  (void)cuda.cudaDriverGetVersion(&driver);
  (void)cuda.cudaRuntimeGetVersion(&runtime);
  if (driver == 0) {
    return unavailable(
        "there is no NVIDIA driver on this machine, or it is not visible "
        "here (in a container: run it with GPUs)");
  }
  return unavailable(fmt::format(
      "the NVIDIA driver is too old: it supports CUDA {}, and the CUDA runtime is {}; "
      "install a newer driver, or a library built for CUDA {}",
      driver_text(driver), driver_text(runtime), driver / 1000));
}

error_message count_devices(const cuda_library& cuda, int& count) {
  switch (const cudaError_t error = cuda.cudaGetDeviceCount(&count)) {
    case cudaSuccess:
      if (count > 0) return {};
      [[fallthrough]];
    case cudaErrorNoDevice:
      (void)cuda.cudaGetLastError();
      return unavailable("there is no GPU, or none is visible to this process");
    case cudaErrorInsufficientDriver:
      (void)cuda.cudaGetLastError();
      return no_driver(cuda);
    default:
      return unavailable("the GPUs cannot be counted: " + cuda.describe(error));
  }
}

std::string host_identity() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  return fmt::format("{} {}", boot_id, own_host_name());
}

/// Gives a share of the multiprocessors back when its world's communicator is gone.
struct share {
  share(std::shared_ptr<device> d, int n) : of(std::move(d)), multiprocessors(n) {}
  share(const share&) = delete;
  share& operator=(const share&) = delete;
  ~share() { of->give_back(multiprocessors); }

  const std::shared_ptr<device> of;
  const int multiprocessors;
};

}  // namespace

device_registry::device_registry()
    : process_(::getpid()), helpers_(std::make_shared<helper_threads>()) {}

device_registry::~device_registry() {
  // A forked child has none of the threads, and no driver.
  if (::getpid() != process_) return;
  const time_point latest = later(std::chrono::steady_clock::now(), longest_end);
  for (const auto& [ordinal, each] : devices_) each->await_lifecycles(latest);
  for (const auto& [ordinal, each] : devices_) {
    each->launching().end();
    each->watching().end();
    // The driver waits for the device to free memory: not for one that will not end.
    if (each->stuck() > 0 || each->failed()) continue;
    (void)helpers_->post([each = each] {
      const device_scope here(each->ordinal());
      each->words().free();
      each->free_probe();
    });
  }
  helpers_->end(last_patience);
}

std::variant<std::shared_ptr<device>, error_message> device_registry::open(
    int ordinal, const device_options& options) {
  auto found = find(ordinal);
  if (std::holds_alternative<error_message>(found)) return found;
  const auto& one = std::get<std::shared_ptr<device>>(found);
  if (const auto error = one->failed()) {
    return unavailable(fmt::format(
        "device {} failed, and this process cannot use it until it is started again: {}",
        ordinal, cuda_library::get().describe(*error)));
  }
  if (const int stuck = one->stuck(); stuck >= device::most_stuck) {
    return error_message{
        cause::device_degraded,
        fmt::format("{} communicators on device {} could not be freed; no more can be "
                    "made there until they are freed or the process is started again",
                    stuck, ordinal)};
  }
  if (const int roots = one->roots(); roots >= device::most_roots) {
    return error_message{
        cause::device_degraded,
        fmt::format("{} communicators on device {} were given up before all members "
                    "came, and NCCL still waits for those members; no more can be made "
                    "there until the process is started again",
                    roots, ordinal)};
  }
  const int wanted = occupied_by(options);
  if (!one->reserve(wanted)) {
    return error_message{
        cause::device_busy,
        fmt::format("device {} has {} multiprocessors, of which {} are given to worlds, "
                    "and this world wants {} (device_options::most_multiprocessors)",
                    ordinal, one->multiprocessors(), one->reserved(), wanted)};
  }
  return std::shared_ptr<device>(std::make_shared<share>(one, wanted), one.get());
}

std::variant<std::shared_ptr<device>, error_message> device_registry::find(int ordinal) {
  if (::getpid() != process_) {
    return error_message{cause::forked, "CUDA does not work in a forked child"};
  }
  const cuda_library& cuda = cuda_library::get();
  if (!cuda.error.empty()) return unavailable(cuda.error);
  const nccl_library& nccl = nccl_library::get();
  if (!nccl.error.empty()) return unavailable(nccl.error);

  // The lock is held while the first one makes the context: the others need it too.
  const std::lock_guard lock(mutex_);
  // First: where a device has failed no call says so as well as that does.
  if (const auto known = devices_.find(ordinal); known != devices_.end()) {
    return known->second;
  }
  int count = 0;
  if (error_message wrong = count_devices(cuda, count)) return wrong;
  if (ordinal < 0 || ordinal >= count) {
    return unavailable(fmt::format("there is no device {}; there {} {}", ordinal,
                                   count == 1 ? "is" : "are", count));
  }
  const device_scope here(ordinal);
  std::size_t unused = 0;
  std::size_t total = 0;
  int multiprocessors = 0;
  int major = 0;
  int minor = 0;
  std::array<char, 64> bus{};
  cudaError_t error = cuda.cudaMemGetInfo(&unused, &total);
  if (error == cudaSuccess) {
    error = cuda.cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount,
                                        ordinal);
  }
  if (error == cudaSuccess) {
    error =
        cuda.cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal);
  }
  if (error == cudaSuccess) {
    error =
        cuda.cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal);
  }
  if (error == cudaSuccess) {
    error = cuda.cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), ordinal);
  }
  cudaStream_t probe = nullptr;
  if (error == cudaSuccess) {
    error = cuda.cudaStreamCreateWithFlags(&probe, cudaStreamNonBlocking);
  }
  cudaEvent_t mark = nullptr;
  if (error == cudaSuccess) {
    error = cuda.cudaEventCreateWithFlags(&mark, cudaEventDisableTiming);
  }
  if (error != cudaSuccess) {
    std::string text =
        fmt::format("device {} cannot be used: {}", ordinal, cuda.describe(error));
    if (probe) (void)cuda.cudaStreamDestroy(probe);
    return unavailable(std::move(text));
  }
  auto made =
      std::make_shared<device>(ordinal, fmt::format("{} {}", host_identity(), bus.data()),
                               multiprocessors, major * 10 + minor, helpers_);
  made->set_probe(probe, mark);
  show_stream(probe,
              fmt::format("manyworlds looks for errors, device {}", ordinal).c_str());
  devices_.emplace(ordinal, made);
  return made;
}

}  // namespace manyworlds::inline v0::detail::nccl
