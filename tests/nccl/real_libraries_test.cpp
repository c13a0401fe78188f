// NVIDIA's own libraries on a machine without a driver: real_libraries.py runs this
// there.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <string>

#include "manyworlds/gpu.hpp"
#include "manyworlds/mw.hpp"
#include "nccl/cuda_library.hpp"
#include "nccl/nccl_library.hpp"

using namespace manyworlds;

namespace {

/// Where what is loaded for `symbol` came from.
std::string library_of(const void* symbol) {
  Dl_info info{};
  return ::dladdr(symbol, &info) != 0 ? info.dli_fname : "";
}

std::string refusal_to_count() {
  try {
    static_cast<void>(device_count());
  } catch (const device_error& e) {
    return e.what();
  }
  return "";
}

task<void> form(runtime& rt, store& st, backend_kind backend) {
  world_options options{.name = "alone", .rank = 0, .size = 1};
  options.backend = backend;
  options.device = 0;
  world w(rt, st, options);
  co_await w;
  co_await w.barrier();
  co_await w.leave();
}

}  // namespace

TEST_CASE(
    "the real libraries load without a driver, say that it is missing each time they are "
    "asked, and worlds on the host serve") {
  const auto& cuda = nccl::cuda_library::get();
  const auto& nccl = nccl::nccl_library::get();
  REQUIRE(static_cast<bool>(cuda.cudaGetDeviceCount));
  REQUIRE(static_cast<bool>(nccl.ncclAllReduce));
  CHECK(library_of(reinterpret_cast<const void*>(cuda.cudaGetDeviceCount))
            .find("emulation") == std::string::npos);
  MESSAGE("NCCL ", nccl.version, ", CUDA ", cuda.runtime, " of ",
          library_of(reinterpret_cast<const void*>(nccl.ncclAllReduce)));

  runtime rt;
  memory_store st;
  for (int i = 0; i < 2; ++i) {
    CHECK(refusal_to_count().find("driver") != std::string::npos);
    const auto refused = [&]() -> task<void> {
      const auto formed = co_await outcome(form(rt, st, backend_kind::nccl));
      REQUIRE_FALSE(formed);
      CHECK(formed.error().cause == cause::device_unavailable);
      CHECK(formed.error().text().find("driver") != std::string::npos);
      world_options host{.name = "host", .rank = 0, .size = 1};
      world w(rt, st, host);
      co_await w;
      co_await w.barrier();
      co_await w.leave();
    };
    rt.run(refused());
  }
}
