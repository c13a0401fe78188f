#include "launch/pmix_session.hpp"

#include <fmt/format.h>

#include <stdexcept>

// The build says 0 where it found no header; elsewhere the include path decides.
#if !defined(MANYWORLDS_HAS_PMIX)
#if __has_include(<pmix.h>)
#define MANYWORLDS_HAS_PMIX 1
#else
#define MANYWORLDS_HAS_PMIX 0
#endif
#endif

#if MANYWORLDS_HAS_PMIX
#include <dlfcn.h>
#include <pmix.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>

#include "io/signals_blocked.hpp"
#include "manyworlds/detail/assertion.hpp"
#endif

namespace manyworlds::inline v0::detail {

#if MANYWORLDS_HAS_PMIX

namespace {

constexpr const char* store_key = "manyworlds.store";

/// The library stays loaded: its thread may outlive the session.
void* load_pmix(std::string& why) {
  for (const char* name : {"libpmix.so.2", "libpmix.so"}) {
    if (void* const found = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)) return found;
  }
  const char* const said = ::dlerror();
  why = fmt::format("libpmix cannot be opened: {}", said ? said : "not found");
  return nullptr;
}

/// Returns a value as text, if it is a number or a text.
std::optional<std::string> text_of_value(const pmix_value_t& value) {
  switch (value.type) {
    case PMIX_STRING:
      return value.data.string ? std::optional<std::string>(value.data.string)
                               : std::nullopt;
    case PMIX_UINT16:
      return std::to_string(value.data.uint16);
    case PMIX_UINT32:
      return std::to_string(value.data.uint32);
    case PMIX_UINT64:
      return std::to_string(value.data.uint64);
    case PMIX_INT:
      return std::to_string(value.data.integer);
    case PMIX_UINT:
      return std::to_string(value.data.uint);
    case PMIX_PROC_RANK:
      return std::to_string(value.data.rank);
    default:
      return std::nullopt;
  }
}

pmix_info_t timeout_info(duration limit) {
  pmix_info_t info;
  std::memset(&info, 0, sizeof info);
  std::strncpy(info.key, PMIX_TIMEOUT, sizeof info.key - 1);
  info.value.type = PMIX_INT;
  info.value.data.integer = static_cast<int>(
      std::max(std::chrono::ceil<std::chrono::seconds>(limit), std::chrono::seconds(1))
          .count());
  return info;
}

/// Waits for a fence to end. The callback keeps it, also beyond a wait that gave up.
struct fence_end {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<pmix_status_t> status;

  static void called(pmix_status_t status, void* mine) {
    const std::unique_ptr<std::shared_ptr<fence_end>> self(
        static_cast<std::shared_ptr<fence_end>*>(mine));
    const std::lock_guard lock((*self)->mutex);
    (*self)->status = status;
    (*self)->changed.notify_all();
  }
  [[nodiscard]] std::optional<pmix_status_t> wait_for(duration limit) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, limit, [this] { return status.has_value(); });
    return status;
  }
};

}  // namespace

/// The functions that are called of it.
struct pmix_session::library {
  using init_call = decltype(&PMIx_Init);
  using finalize_call = decltype(&PMIx_Finalize);
  using put_call = decltype(&PMIx_Put);
  using commit_call = decltype(&PMIx_Commit);
  using fence_call = decltype(&PMIx_Fence_nb);
  using get_call = decltype(&PMIx_Get);
  using error_string_call = decltype(&PMIx_Error_string);

  init_call init = nullptr;
  finalize_call finalize = nullptr;
  put_call put = nullptr;
  commit_call commit = nullptr;
  fence_call fence = nullptr;
  get_call get = nullptr;
  error_string_call error_string = nullptr;
  pmix_proc_t self{};

  template <class Function>
  static bool find(void* in, const char* name, Function& into, std::string& why) {
    into = reinterpret_cast<Function>(::dlsym(in, name));
    if (!into) why = fmt::format("libpmix has no {}", name);
    return into != nullptr;
  }
  [[nodiscard]] bool find_all(void* in, std::string& why) {
    return find(in, "PMIx_Init", init, why) && find(in, "PMIx_Finalize", finalize, why) &&
           find(in, "PMIx_Put", put, why) && find(in, "PMIx_Commit", commit, why) &&
           find(in, "PMIx_Fence_nb", fence, why) && find(in, "PMIx_Get", get, why) &&
           find(in, "PMIx_Error_string", error_string, why);
  }
  void check(pmix_status_t status, std::string_view what) const {
    if (status == PMIX_SUCCESS) return;
    throw std::runtime_error(fmt::format("{} failed: {}", what, error_string(status)));
  }
  /// Asks for a fact of one member, or of all together (PMIX_RANK_WILDCARD).
  [[nodiscard]] std::optional<std::string> fact(pmix_rank_t of, const char* key,
                                                const pmix_info_t* how = nullptr) const {
    pmix_proc_t proc = self;
    proc.rank = of;
    pmix_value_t* value = nullptr;
    if (get(&proc, key, how, how ? 1 : 0, &value) != PMIX_SUCCESS || !value)
      return std::nullopt;
    auto text = text_of_value(*value);
    if (value->type == PMIX_STRING) std::free(value->data.string);
    std::free(value);
    return text;
  }
};

std::shared_ptr<pmix_session> pmix_session::open(std::string& why) {
  void* const found = load_pmix(why);
  if (!found) return nullptr;
  auto lib = std::make_unique<library>();
  if (!lib->find_all(found, why)) return nullptr;
  {
    // Its thread takes none of the program's signals.
    const signals_blocked while_it_starts;
    const pmix_status_t status = lib->init(&lib->self, nullptr, 0);
    if (status != PMIX_SUCCESS) {
      why = fmt::format("PMIx_Init failed: {}", lib->error_string(status));
      return nullptr;
    }
  }
  std::shared_ptr<pmix_session> session(new pmix_session);
  session->library_ = std::move(lib);
  return session;
}

pmix_session::~pmix_session() {
  MW_ASSERT(library_, "a session that was opened has its library");
  (void)library_->finalize(nullptr, 0);
}

void pmix_session::add_facts(launch_variables& to) const {
  const pmix_rank_t self = library_->self.rank;
  const pmix_rank_t all = PMIX_RANK_WILDCARD;
  const std::array<std::pair<const char*, pmix_rank_t>, 6> facts{{{PMIX_JOB_SIZE, all},
                                                                  {PMIX_LOCAL_RANK, self},
                                                                  {PMIX_LOCAL_SIZE, all},
                                                                  {PMIX_NODEID, self},
                                                                  {PMIX_NUM_NODES, all},
                                                                  {PMIX_HOSTNAME, 0}}};
  for (const auto& [key, of] : facts) {
    if (const auto text = library_->fact(of, key)) to.insert_or_assign(key, *text);
  }
}

std::string pmix_session::share(const std::string& of_rank_zero, duration limit) const {
  if (!of_rank_zero.empty()) {
    std::string text = of_rank_zero;
    pmix_value_t value;
    std::memset(&value, 0, sizeof value);
    value.type = PMIX_STRING;
    value.data.string = text.data();
    library_->check(library_->put(PMIX_GLOBAL, store_key, &value), "PMIx_Put");
  }
  library_->check(library_->commit(), "PMIx_Commit");
  pmix_info_t collect;
  std::memset(&collect, 0, sizeof collect);
  std::strncpy(collect.key, PMIX_COLLECT_DATA, sizeof collect.key - 1);
  collect.value.type = PMIX_BOOL;
  collect.value.data.flag = true;
  auto end = std::make_shared<fence_end>();
  auto kept = std::make_unique<std::shared_ptr<fence_end>>(end);
  // A fence of no named members is one of all.
  const pmix_status_t begun =
      library_->fence(nullptr, 0, &collect, 1, &fence_end::called, kept.get());
  if (begun != PMIX_OPERATION_SUCCEEDED) {
    library_->check(begun, "PMIx_Fence");
    kept.release();
    const auto status = end->wait_for(limit);
    if (!status) {
      throw std::runtime_error(
          "PMIx_Fence did not end in time, since not all members have come to it");
    }
    library_->check(*status, "PMIx_Fence");
  }
  const pmix_info_t bounded = timeout_info(limit);
  const auto text = library_->fact(0, store_key, &bounded);
  if (!text) throw std::runtime_error("PMIx_Get found nothing of rank 0");
  return *text;
}

#else

struct pmix_session::library {};

std::shared_ptr<pmix_session> pmix_session::open(std::string& why) {
  why = "this build of the library was made without PMIx's header";
  return nullptr;
}

pmix_session::~pmix_session() = default;

void pmix_session::add_facts(launch_variables&) const {}

std::string pmix_session::share(const std::string&, duration) const {
  throw std::runtime_error("this build of the library was made without PMIx's header");
}

#endif

}  // namespace manyworlds::inline v0::detail
