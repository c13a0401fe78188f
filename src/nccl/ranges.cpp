#include "nccl/ranges.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <exception>

// Only this source asks for it. The build system says 0 where it found no header, or was
// told to do without; else what lies on the include path decides.
#if !defined(MANYWORLDS_HAS_NVTX)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define MANYWORLDS_HAS_NVTX 1
#else
#define MANYWORLDS_HAS_NVTX 0
#endif
#endif

#if MANYWORLDS_HAS_NVTX
#include <nvtx3/nvToolsExt.h>
#if __has_include(<nvtx3/nvToolsExtCudaRt.h>) && __has_include(<cuda.h>)
#include <nvtx3/nvToolsExtCudaRt.h>
#endif
#endif

namespace manyworlds::inline v0::detail::nccl {

std::string label_of(const world_name& world, std::uint64_t epoch) {
  return fmt::format("{}@{}", world.view(), epoch);
}

range_name range_names::of(operation_kind kind) noexcept {
  return known(of_kinds_[static_cast<std::size_t>(kind)], name_of(kind));
}

range_name range_names::of_group() noexcept { return known(of_group_, "group"); }

#if MANYWORLDS_HAS_NVTX

namespace {

enum category : std::uint32_t { operations = 1, launches, communicators };

// Made on the first use, and never destroyed: threads of the library may outlive what
// would do that. It is null where no tool listens. NVTX finds the tool in its first call,
// and later ones read without order what that has found: so this one comes before all
// others of every thread.
nvtxDomainHandle_t domain() noexcept {
  static const nvtxDomainHandle_t made = [] {
    const nvtxDomainHandle_t ours = nvtxDomainCreateA("manyworlds");
    if (ours) {
      nvtxDomainNameCategoryA(ours, operations, "operation");
      nvtxDomainNameCategoryA(ours, launches, "launch");
      nvtxDomainNameCategoryA(ours, communicators, "communicator");
    }
    return ours;
  }();
  return made;
}

nvtxEventAttributes_t attributes(category of) noexcept {
  nvtxEventAttributes_t made{};
  made.version = NVTX_VERSION;
  made.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  made.category = of;
  return made;
}

nvtxEventAttributes_t attributes(category of, range_name name,
                                 std::uint64_t bytes) noexcept {
  nvtxEventAttributes_t made = attributes(of);
  made.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  made.message.registered = name;
  made.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  made.payload.ullValue = bytes;
  return made;
}

nvtxEventAttributes_t attributes(category of, const char* text) noexcept {
  nvtxEventAttributes_t made = attributes(of);
  made.messageType = NVTX_MESSAGE_TYPE_ASCII;
  made.message.ascii = text;
  return made;
}

}  // namespace

bool is_traced() noexcept { return domain() != nullptr; }

range_name range_names::known(range_name& name, std::string_view what) noexcept {
  if (name || !is_traced()) return name;
  try {
    const std::string text = fmt::format("{} {}", what, label_of(world_, epoch_));
    name = nvtxDomainRegisterStringA(domain(), text.c_str());
  } catch (const std::exception&) {
    // Without memory the operation is not shown, and takes place nevertheless.
  }
  return name;
}

void operation_range::begin(range_name name, std::uint64_t bytes) noexcept {
  if (!name) return;
  const nvtxEventAttributes_t shown = attributes(operations, name, bytes);
  id_ = nvtxDomainRangeStartEx(domain(), &shown);
  is_open_ = true;
}

void operation_range::end() noexcept {
  if (!is_open_) return;
  is_open_ = false;
  nvtxDomainRangeEnd(domain(), id_);
}

thread_range::thread_range(range_name name, std::uint64_t bytes) noexcept {
  if (!name) return;
  const nvtxEventAttributes_t shown = attributes(launches, name, bytes);
  (void)nvtxDomainRangePushEx(domain(), &shown);
  is_open_ = true;
}

thread_range::thread_range(const char* text) noexcept {
  if (!is_traced()) return;
  const nvtxEventAttributes_t shown = attributes(communicators, text);
  (void)nvtxDomainRangePushEx(domain(), &shown);
  is_open_ = true;
}

thread_range::~thread_range() {
  if (is_open_) (void)nvtxDomainRangePop(domain());
}

void mark(const char* text) noexcept {
  if (!is_traced()) return;
  const nvtxEventAttributes_t shown = attributes(communicators, text);
  nvtxDomainMarkEx(domain(), &shown);
}

void show_thread(const char* name) noexcept {
  if (is_traced()) nvtxNameOsThreadA(static_cast<std::uint32_t>(::gettid()), name);
}

void show_stream([[maybe_unused]] cudaStream_t stream,
                 [[maybe_unused]] const char* name) noexcept {
#if defined(NVTOOLSEXT_CUDART_V3)
  if (is_traced()) nvtxNameCudaStreamA(stream, name);
#endif
}

#else

bool is_traced() noexcept { return false; }
range_name range_names::known(range_name& name, std::string_view) noexcept {
  return name;
}
void operation_range::begin(range_name, std::uint64_t) noexcept {}
void operation_range::end() noexcept {}
thread_range::thread_range(range_name, std::uint64_t) noexcept {}
thread_range::thread_range(const char*) noexcept {}
thread_range::~thread_range() {}
void mark(const char*) noexcept {}
void show_thread(const char*) noexcept {}
void show_stream(cudaStream_t, const char*) noexcept {}

#endif

}  // namespace manyworlds::inline v0::detail::nccl
