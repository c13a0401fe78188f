#include "nccl/completion.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <variant>
#include <vector>

#include "nccl/device_fixture.hpp"
#include "nccl/device_registry.hpp"
#include "nccl/freeing_thread.hpp"
#include "nccl/own_process.hpp"
#include "support/eventually.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;
using namespace std::chrono_literals;

TEST_SUITE_BEGIN("completion");

namespace {

class tested_stream {
 public:
  tested_stream() {
    REQUIRE(cuda().cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) ==
            cudaSuccess);
  }
  tested_stream(const tested_stream&) = delete;
  tested_stream& operator=(const tested_stream&) = delete;
  ~tested_stream() { (void)cuda().cudaStreamDestroy(stream_); }

  operator cudaStream_t() const { return stream_; }
  [[nodiscard]] bool is_drained() const {
    return cuda().cudaStreamQuery(stream_) == cudaSuccess;
  }

 private:
  cudaStream_t stream_ = nullptr;
};

struct completion_fixture {
  explicit completion_fixture(completion_by by) {
    auto opened = registry.open(0, device_options{});
    REQUIRE(std::holds_alternative<std::shared_ptr<nccl::device>>(opened));
    device = std::get<0>(opened);
    REQUIRE(device->watching().start(device->helpers()));
    tested = std::make_shared<nccl::completion>(device, stream, by);
    REQUIRE(tested->by() == by);
  }
  ~completion_fixture() {
    CHECK(eventually([&] { return stream.is_drained(); }));
    tested->close(true);
  }

  [[nodiscard]] bool reaches(std::uint64_t number) {
    return eventually([&] { return tested->reached() == number; });
  }

  nccl::device_registry registry;
  std::shared_ptr<nccl::device> device;
  tested_stream stream;
  std::shared_ptr<nccl::completion> tested;
};

// Without the driver's call there are events only.
std::vector<completion_by> ways() {
  if (!cuda().write_word) return {completion_by::events};
  return {completion_by::words, completion_by::events};
}

}  // namespace

TEST_CASE("a number is reached when what was before it on the stream is done") {
  NEEDS_DEVICE();
  for (const completion_by by : ways()) {
    CAPTURE(static_cast<int>(by));
    completion_fixture f(by);
    CHECK(f.tested->reached() == 0);
    gate first(device_stream(f.stream));
    CHECK(f.tested->mark(1) == cudaSuccess);
    gate second(device_stream(f.stream));
    CHECK(f.tested->mark(4) == cudaSuccess);
    CHECK(f.tested->mark(5) == cudaSuccess);
    CHECK(f.tested->reached() == 0);
    first.open();
    CHECK(f.reaches(1));
    second.open();
    CHECK(f.reaches(5));
  }
}

TEST_CASE("more numbers may wait than there were events at first") {
  NEEDS_DEVICE();
  completion_fixture f(completion_by::events);
  gate held(device_stream(f.stream));
  for (std::uint64_t number = 1; number <= 100; ++number) {
    REQUIRE(f.tested->mark(number) == cudaSuccess);
  }
  CHECK(f.tested->reached() == 0);
  held.open();
  CHECK(f.reaches(100));
}

TEST_CASE("numbers grow on beyond what a word holds") {
  NEEDS_DEVICE();
  if (!cuda().write_word) {
    MESSAGE("skipped: the driver writes no words");
    return;
  }
  completion_fixture f(completion_by::words);
  std::uint64_t number = 0;
  for (int times = 0; times < 6; ++times) {
    number += 0x6fff'ffff;
    REQUIRE(f.tested->mark(number) == cudaSuccess);
    REQUIRE(f.reaches(number));
  }
  CHECK(number > 0xffff'ffff);
}

TEST_CASE("streams are ordered against the world's as they were when asked") {
  NEEDS_DEVICE();
  completion_fixture f(ways().front());
  tested_stream before;
  tested_stream after;
  gate held{device_stream(before)};
  CHECK(f.tested->join(before) == cudaSuccess);
  gate later_one{device_stream(before)};
  CHECK(f.tested->mark(1) == cudaSuccess);
  CHECK(f.tested->release_to(after) == cudaSuccess);
  CHECK(f.tested->join(f.stream) == cudaSuccess);
  CHECK(f.tested->reached() == 0);
  CHECK_FALSE(after.is_drained());
  held.open();
  CHECK(f.reaches(1));
  CHECK(eventually([&] { return after.is_drained(); }));
  CHECK_FALSE(before.is_drained());
}

TEST_CASE(
    "law 9: who asks how far a stream has got waits for no thread that is in CUDA") {
  NEEDS_DEVICE();
  if (!runs_alone({"EMULATED_CUDA_DRIVER_LOCK=1"})) return;
  for (const completion_by by : ways()) {
    CAPTURE(static_cast<int>(by));
    completion_fixture f(by);
    freeing_thread application;
    gate held(device_stream(f.stream));
    REQUIRE(f.tested->mark(1) == cudaSuccess);
    application.begin();
    // It has the driver's lock until the stream goes on, as the watcher finds when it
    // asks.
    CHECK_FALSE(application.has_ended_after(100ms));
    CHECK(f.tested->reached() == 0);
    CHECK(f.device->check() == std::nullopt);
    CHECK_FALSE(application.has_ended_after(0ms));
    held.open();
    CHECK(f.reaches(1));
    CHECK(application.has_ended_after(20s));
  }
}

TEST_CASE("a stream's word has no second owner before the stream is drained") {
  NEEDS_DEVICE();
  nccl::pinned_words words;
  const nccl::pinned_word first = words.take();
  REQUIRE(first);
  first.write(7);
  const nccl::pinned_word second = words.take();
  CHECK(second.host != first.host);
  words.give_back(first);
  const nccl::pinned_word again = words.take();
  CHECK(again.host == first.host);
  CHECK(again.read() == 0);
  words.give_back(again);
  words.give_back(second);
  words.free();
}
