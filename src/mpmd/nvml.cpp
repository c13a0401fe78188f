#include "mpmd/nvml.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>

namespace manyworlds::inline v0::detail {

namespace {

/// A process sees no more GPUs than these by any driver that there is.
constexpr unsigned int most_counted_gpus = 1024;

struct closes_library {
  void operator()(void* handle) const noexcept { ::dlclose(handle); }
};

/// The library while it is in use.
class nvml_session {
 public:
  /// Returns nothing where it is not there, lacks a function or does not start.
  [[nodiscard]] static std::optional<nvml_session> open(const std::string& library) {
    nvml_session made;
    made.handle_.reset(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (!made.handle_) return std::nullopt;
    const bool is_whole = made.find("nvmlInit_v2", made.init_) &&
                          made.find("nvmlShutdown", made.shutdown_) &&
                          made.find("nvmlDeviceGetCount_v2", made.count_) &&
                          made.find("nvmlDeviceGetHandleByIndex_v2", made.handle_of_) &&
                          made.find("nvmlDeviceGetUUID", made.uuid_of_) &&
                          made.find("nvmlDeviceGetMemoryInfo", made.memory_of_) &&
                          made.find("nvmlDeviceGetPciInfo_v3", made.pci_of_);
    if (!is_whole || made.init_() != 0) return std::nullopt;
    made.is_started_ = true;
    return made;
  }

  nvml_session(nvml_session&& other) noexcept
      : handle_(std::move(other.handle_)),
        is_started_(std::exchange(other.is_started_, false)),
        init_(other.init_),
        shutdown_(other.shutdown_),
        count_(other.count_),
        handle_of_(other.handle_of_),
        uuid_of_(other.uuid_of_),
        memory_of_(other.memory_of_),
        pci_of_(other.pci_of_) {}
  nvml_session& operator=(nvml_session&&) = delete;
  ~nvml_session() {
    if (is_started_) static_cast<void>(shutdown_());
  }

  [[nodiscard]] unsigned int count() const {
    unsigned int gpus = 0;
    if (count_(&gpus) != 0) return 0;
    return gpus < most_counted_gpus ? gpus : most_counted_gpus;
  }

  [[nodiscard]] nvml_gpu gpu(unsigned int index) const {
    nvml_gpu found;
    nvml::device device = nullptr;
    if (handle_of_(index, &device) != 0) return found;
    std::array<char, nvml::uuid_size> uuid{};
    if (uuid_of_(device, uuid.data(), nvml::uuid_size) != 0) return found;
    uuid.back() = '\0';
    found.uuid = uuid.data();
    nvml::memory_info memory{};
    if (memory_of_(device, &memory) == 0) found.memory = memory.total;
    nvml::pci_info pci{};
    // A GPU is function 0 of its device. NVML's own text has more zeros than the folder.
    if (pci_of_(device, &pci) == 0)
      found.address =
          fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
    return found;
  }

 private:
  nvml_session() = default;

  template <class Function>
  [[nodiscard]] bool find(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(::dlsym(handle_.get(), symbol));
    return function != nullptr;
  }

  std::unique_ptr<void, closes_library> handle_;
  bool is_started_ = false;
  nvml::init_call* init_ = nullptr;
  nvml::shutdown_call* shutdown_ = nullptr;
  nvml::count_call* count_ = nullptr;
  nvml::handle_call* handle_of_ = nullptr;
  nvml::uuid_call* uuid_of_ = nullptr;
  nvml::memory_call* memory_of_ = nullptr;
  nvml::pci_call* pci_of_ = nullptr;
};

}  // namespace

std::vector<nvml_gpu> nvml_gpus(const std::string& library) {
  std::vector<nvml_gpu> gpus;
  const std::optional<nvml_session> session = nvml_session::open(library);
  if (!session) return gpus;
  const unsigned int count = session->count();
  for (unsigned int i = 0; i < count; ++i) gpus.push_back(session->gpu(i));
  return gpus;
}

}  // namespace manyworlds::inline v0::detail
