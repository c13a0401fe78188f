#include "nccl/device_registry.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <variant>

#include "nccl/cuda_library.hpp"
#include "nccl/device_fixture.hpp"
#include "nccl/own_process.hpp"
#include "support/eventually.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("device registry");

namespace {

using opened = std::variant<std::shared_ptr<nccl::device>, nccl::error_message>;

std::shared_ptr<nccl::device> device_of(const opened& o) {
  if (const auto* refused = std::get_if<nccl::error_message>(&o)) FAIL(refused->text);
  return std::get<std::shared_ptr<nccl::device>>(o);
}

nccl::error_message error_of(const opened& o) {
  REQUIRE(std::holds_alternative<nccl::error_message>(o));
  return std::get<nccl::error_message>(o);
}

bool says(const nccl::error_message& o, const char* what) {
  return o.text.find(what) != std::string::npos;
}

}  // namespace

TEST_CASE(
    "a device is the same for all worlds of a runtime, and known to another by name") {
  NEEDS_DEVICE();
  nccl::device_registry one;
  nccl::device_registry another;
  const auto first = device_of(one.open(0, {}));
  CHECK(device_of(one.open(0, {})).get() == first.get());
  const auto same = device_of(another.open(0, {}));
  CHECK(same.get() != first.get());
  CHECK(same->identity() == first->identity());
  CHECK(first->multiprocessors() > 0);
}

TEST_CASE(
    "within a device's scope the driver's calls work, afterwards all is as before") {
  NEEDS_OWN_DEVICES(3);
  if (!runs_alone({"MANYWORLDS_TEST_DEVICE=1"})) return;
  const auto& cuda = nccl::cuda_library::get();
  const auto device_now = [&] {
    int device = -1;
    CHECK(cuda.cudaGetDevice(&device) == cudaSuccess);
    return device;
  };
  const auto ask_driver = [&] {
    int device = -1;
    return cuda.context_device(&device);
  };
  std::thread([&] {
    CHECK(ask_driver() != 0);
    {
      const nccl::device_scope here(1);
      CHECK(device_now() == 1);
      CHECK(ask_driver() == 0);
    }
    CHECK(device_now() == 0);
    CHECK(ask_driver() != 0);
    REQUIRE(cuda.cudaSetDevice(2) == cudaSuccess);
    {
      const nccl::device_scope here(1);
      const nccl::device_scope again(1);
      CHECK(device_now() == 1);
    }
    CHECK(device_now() == 2);
  }).join();
  CHECK_FALSE(has_context(0));
}

TEST_CASE("a device that is not there is named with how many there are") {
  NEEDS_DEVICE();
  nccl::device_registry registry;
  for (const int ordinal : {-1, 999}) {
    const auto refused = error_of(registry.open(ordinal, {}));
    CHECK(refused.why == cause::device_unavailable);
    CHECK(says(refused, std::to_string(ordinal).c_str()));
    CHECK(says(refused, "there "));
  }
}

TEST_CASE(
    "worlds get no more multiprocessors than there are, until one gives them back") {
  NEEDS_DEVICE();
  nccl::device_registry registry;
  auto first = device_of(registry.open(0, {}));
  device_options rest;
  rest.most_multiprocessors = first->multiprocessors() - first->reserved();
  auto second = device_of(registry.open(0, rest));
  CHECK(second->reserved() == second->multiprocessors());
  const auto refused = error_of(registry.open(0, {}));
  CHECK(refused.why == cause::device_busy);
  CHECK(says(refused, std::to_string(first->multiprocessors()).c_str()));
  first = nullptr;
  CHECK(device_of(registry.open(0, {})));
}

TEST_CASE("a failed device is found although its idle streams hide the error") {
  NEEDS_DEVICE();
  if (!is_emulated()) return;
  if (!runs_alone({"EMULATED_CUDA_STICKY_SHOWN=busy"})) return;
  nccl::device_registry registry;
  const auto found = device_of(registry.open(0, {}));
  CHECK(found->watching().start(registry.helpers()));
  CHECK_FALSE(found->check());
  find_in_cudart<void(int, cudaError_t)>("cudaEmulatedBreakDevice")(
      0, cudaErrorIllegalAddress);
  CHECK(eventually([&] { return found->check() == cudaErrorIllegalAddress; }));
}

TEST_CASE("without a driver the error says so") {
  if (!runs_alone({"EMULATED_CUDA_DRIVER=0"})) return;
  nccl::device_registry registry;
  const auto refused = error_of(registry.open(0, {}));
  CHECK(refused.why == cause::device_unavailable);
  CHECK(says(refused, "no NVIDIA driver"));
}

TEST_CASE("a driver that is too old is named with the version that is needed") {
  if (!runs_alone({"EMULATED_CUDA_DRIVER=12040"})) return;
  nccl::device_registry registry;
  const auto refused = error_of(registry.open(0, {}));
  CHECK(refused.why == cause::device_unavailable);
  CHECK(says(refused, "CUDA 12.4"));
  CHECK(says(refused, "13.0"));
}

TEST_CASE("an NCCL that is too old is named with the version that is needed") {
  if (!runs_alone({"EMULATED_NCCL_VERSION=21403"})) return;
  nccl::device_registry registry;
  const auto refused = error_of(registry.open(0, {}));
  CHECK(refused.why == cause::device_unavailable);
  CHECK(says(refused, "2.14.3"));
  CHECK(says(refused, "2.18.0"));
}

TEST_CASE(
    "a forked child gets an error, and the end of its registry waits for no thread") {
  NEEDS_DEVICE();
  nccl::device_registry registry;
  const auto known = device_of(registry.open(0, {}));
  REQUIRE(registry.helpers().post([] {}));
  const pid_t child = ::fork();
  if (child == 0) {
    bool right = false;
    {
      const auto refused = registry.open(0, {});
      const auto* why = std::get_if<nccl::error_message>(&refused);
      right = why && why->why == cause::forked;
    }
    registry.~device_registry();
    ::_exit(right ? 0 : 1);
  }
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
