// The names that CUDA 12.4 and NCCL 2.18.3 export and do not, found as a program finds
// them that links neither. Sources: cuda_runtime_api.h of 12.4, nm -D of
// libnccl.so.2.18.3.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <string>

namespace {

class library {
 public:
  explicit library(const char* name) : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    const char* said = handle_ ? nullptr : dlerror();
    if (!handle_) FAIL(std::string(said ? said : name));
  }
  library(const library&) = delete;

  bool has(const char* name) const { return dlsym(handle_, name) != nullptr; }
  template <class Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }

 private:
  void* handle_;
};

// As driver_types.h of 12.4 declares it.
struct attributes_of_12 {
  int type;
  int device;
  void* on_device;
  void* on_host;
};

}  // namespace

TEST_CASE("the runtime of 12.4 lacks the calls that came later") {
  const library cuda("libcudart.so.12");
  int version = 0;
  REQUIRE(cuda.find<int(int*)>("cudaRuntimeGetVersion")(&version) == 0);
  CHECK(version == 12040);
  for (const char* name : {"cudaStreamGetDevice", "cudaGetDriverEntryPointByVersion"}) {
    CAPTURE(name);
    CHECK_FALSE(cuda.has(name));
  }
  for (const char* name : {"cudaGetDriverEntryPoint", "cudaPointerGetAttributes",
                           "cudaStreamCreateWithPriority"}) {
    CAPTURE(name);
    CHECK(cuda.has(name));
  }
}

TEST_CASE("the runtime of 12.4 writes no more attributes than it knows") {
  const library cuda("libcudart.so.12");
  struct {
    attributes_of_12 known{};
    long after = 7;
  } told;
  void* memory = nullptr;
  REQUIRE(cuda.find<int(void**, std::size_t)>("cudaMalloc")(&memory, 16) == 0);
  auto* const ask = cuda.find<int(void*, const void*)>("cudaPointerGetAttributes");
  CHECK(ask(&told, memory) == 0);
  CHECK(told.known.on_device == memory);
  CHECK(told.known.device == 0);
  CHECK(told.after == 7);
  CHECK(cuda.find<int(void*)>("cudaFree")(memory) == 0);
}

TEST_CASE("it is one library under the soname of 13") {
  const library older("libcudart.so.12");
  const library newer("libcudart.so.13");
  CHECK(bool{older.find<void()>("cudaMalloc") == newer.find<void()>("cudaMalloc")});
}

TEST_CASE("NCCL 2.18 lacks the calls that came later") {
  const library nccl("libnccl.so.2");
  int version = 0;
  REQUIRE(nccl.find<int(int*)>("ncclGetVersion")(&version) == 0);
  CHECK(version == 21803);
  for (const char* name :
       {"ncclCommRevoke", "ncclCommShrink", "ncclCommSuspend", "ncclCommMemStats",
        "ncclCommRegister", "ncclMemAlloc", "ncclAlltoAll", "ncclCommInitRankScalable",
        "ncclCommWindowRegister"}) {
    CAPTURE(name);
    CHECK_FALSE(nccl.has(name));
  }
  for (const char* name :
       {"ncclCommSplit", "ncclCommAbort", "ncclCommFinalize", "ncclSend", "pncclSend"}) {
    CAPTURE(name);
    CHECK(nccl.has(name));
  }
}
