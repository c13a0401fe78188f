#include "manyworlds/nccl/device_count.hpp"

#include <doctest/doctest.h>

#include <string>

#include "nccl/device_fixture.hpp"

namespace mw = manyworlds;

TEST_SUITE_BEGIN("device_count");

TEST_CASE("GPUs are counted, or it is said why there are none") {
  std::string said;
  int counted = 0;
  try {
    counted = mw::device_count();
  } catch (const mw::device_error& e) {
    said = e.what();
  }
  if (mw::testing::no_device().empty()) {
    int devices = 0;
    REQUIRE(mw::testing::cuda().cudaGetDeviceCount(&devices) == cudaSuccess);
    CHECK(counted == devices);
    CHECK(said == "");
  } else {
    CHECK(said.starts_with("looking for GPUs: "));
    CHECK(said.size() > 40);
  }
}

TEST_SUITE_END();
