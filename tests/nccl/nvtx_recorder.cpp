#include "nvtx_recorder.hpp"

#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <mutex>

// NVTX hands these about by pointer, and leaves to the tool what they are.
struct nvtxDomainRegistration_st {
  std::string name;
};
struct nvtxStringRegistration_st {
  std::string text;
};

namespace manyworlds::testing {

namespace {

// Never destroyed: threads of the library may end after the program's own.
struct record {
  std::mutex guard;
  std::deque<recorded_event> events;
  std::deque<nvtxDomainRegistration_st> domains;
  std::deque<nvtxStringRegistration_st> strings;
  std::atomic<std::uint64_t> last_range{0};

  static record& here() {
    static auto* const made = new record;
    return *made;
  }

  void add(recorded_event event) {
    const std::lock_guard lock(guard);
    events.push_back(std::move(event));
  }
};

recorded_event of(told what, nvtxDomainHandle_t domain) {
  recorded_event event;
  event.what = what;
  if (domain) event.domain = domain->name;
  event.thread = ::gettid();
  return event;
}

recorded_event of(told what, nvtxDomainHandle_t domain,
                  const nvtxEventAttributes_t* shown) {
  recorded_event event = of(what, domain);
  if (shown->messageType == NVTX_MESSAGE_TYPE_REGISTERED) {
    event.text = shown->message.registered->text;
  } else if (shown->messageType == NVTX_MESSAGE_TYPE_ASCII) {
    event.text = shown->message.ascii;
  }
  if (shown->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64) {
    event.payload = shown->payload.ullValue;
  }
  return event;
}

nvtxDomainHandle_t create_domain(const char* name) {
  record& all = record::here();
  const std::lock_guard lock(all.guard);
  return &all.domains.emplace_back(nvtxDomainRegistration_st{name});
}

nvtxStringHandle_t register_string(nvtxDomainHandle_t, const char* text) {
  record& all = record::here();
  const std::lock_guard lock(all.guard);
  return &all.strings.emplace_back(nvtxStringRegistration_st{text});
}

nvtxRangeId_t start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* shown) {
  recorded_event event = of(told::start, domain, shown);
  event.id = ++record::here().last_range;
  const nvtxRangeId_t id = event.id;
  record::here().add(std::move(event));
  return id;
}

void end(nvtxDomainHandle_t domain, nvtxRangeId_t id) {
  recorded_event event = of(told::end, domain);
  event.id = id;
  record::here().add(std::move(event));
}

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* shown) {
  record::here().add(of(told::push, domain, shown));
  return 0;
}

int pop(nvtxDomainHandle_t domain) {
  record::here().add(of(told::pop, domain));
  return 0;
}

void mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* shown) {
  record::here().add(of(told::mark, domain, shown));
}

void name_thread(std::uint32_t thread, const char* name) {
  recorded_event event = of(told::thread, nullptr);
  event.text = name;
  event.thread = static_cast<::pid_t>(thread);
  record::here().add(std::move(event));
}

void name_stream(cudaStream_t, const char* name) {
  recorded_event event = of(told::stream, nullptr);
  event.text = name;
  record::here().add(std::move(event));
}

struct functions {
  NvtxFunctionTable table = nullptr;
  unsigned count = 0;

  functions(const NvtxExportTableCallbacks& callbacks, NvtxCallbackModule module) {
    if (!callbacks.GetModuleFunctionTable(module, &table, &count)) count = 0;
  }
  template <class Function>
  void set(unsigned which, Function* to) const {
    if (which < count) *table[which] = reinterpret_cast<NvtxFunctionPointer>(to);
  }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void manyworlds_nvtx_recorded(
    void (*each)(void* context, const recorded_event& event), void* context) {
  record& all = record::here();
  const std::lock_guard lock(all.guard);
  for (const recorded_event& event : all.events) each(context, event);
}

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t export_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  if (!callbacks) return 0;
  const functions domains(*callbacks, NVTX_CB_MODULE_CORE2);
  domains.set(NVTX_CBID_CORE2_DomainCreateA, &create_domain);
  domains.set(NVTX_CBID_CORE2_DomainRegisterStringA, &register_string);
  domains.set(NVTX_CBID_CORE2_DomainRangeStartEx, &start);
  domains.set(NVTX_CBID_CORE2_DomainRangeEnd, &end);
  domains.set(NVTX_CBID_CORE2_DomainRangePushEx, &push);
  domains.set(NVTX_CBID_CORE2_DomainRangePop, &pop);
  domains.set(NVTX_CBID_CORE2_DomainMarkEx, &mark);
  functions(*callbacks, NVTX_CB_MODULE_CORE)
      .set(NVTX_CBID_CORE_NameOsThreadA, &name_thread);
  functions(*callbacks, NVTX_CB_MODULE_CUDART)
      .set(NVTX_CBID_CUDART_NameCudaStreamA, &name_stream);
  return 1;
}

}  // namespace manyworlds::testing
