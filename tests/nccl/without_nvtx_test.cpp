// The library as it is built without NVTX's header (tests/nccl/meson.build), with a tool
// there that would listen.
#include <cstdlib>

#include "gpu_worlds.hpp"
#include "nccl/ranges.hpp"
#include "nccl/shared_library.hpp"
#include "nvtx_recorder.hpp"

using namespace manyworlds;
using namespace manyworlds::nccl_tests;

TEST_CASE("without NVTX's header worlds work, and tell a tool nothing") {
  NEEDS_OWN_DEVICES(2);
  REQUIRE(::setenv("NVTX_INJECTION64_PATH", MANYWORLDS_TEST_RECORDER, 1) == 0);
  in_world(2, [](member& m, world& w) -> task<void> {
    auto x = co_await m.on_device(std::vector<float>(1000, 1));
    co_await w.all_reduce(x, sum);
    CHECK((co_await m.read(x))[7] == 2);
  });
  CHECK_FALSE(nccl::is_traced());
  const nccl::shared_library recorder(MANYWORLDS_TEST_RECORDER);
  auto* const recorded = recorder.find<manyworlds::testing::recorded_function>(
      manyworlds::testing::recorded_name);
  REQUIRE((recorded != nullptr));
  int events = 0;
  recorded([](void* count, const auto&) { ++*static_cast<int*>(count); }, &events);
  CHECK(events == 0);
}
