#include "manyworlds/nccl/device_buffer.hpp"

#include <doctest/doctest.h>

#include <concepts>
#include <stdexcept>
#include <string>
#include <utility>

#include "manyworlds/memory/gather_list.hpp"
#include "manyworlds/nccl/owned_stream.hpp"
#include "manyworlds/nccl/pinned_pool.hpp"
#include "nccl/device_fixture.hpp"
#include "support/eventually.hpp"

namespace mw = manyworlds;
using mw::testing::gate;

using floats = mw::device_buffer<float>;

// A named buffer is what a send or a receive takes; a temporary would be gone too early.
static_assert(std::convertible_to<floats&, mw::device_view>);
static_assert(std::convertible_to<floats&, mw::const_device_view>);
static_assert(std::convertible_to<const floats&, mw::const_device_view>);
static_assert(!std::convertible_to<const floats&, mw::device_view>);
static_assert(!std::convertible_to<floats, mw::device_view>);
static_assert(!std::convertible_to<floats, mw::const_device_view>);
static_assert(std::convertible_to<floats&, mw::device_gather_list>);
static_assert(std::convertible_to<const floats&, mw::device_gather_list>);
static_assert(std::convertible_to<floats&, mw::device_scatter_list>);
static_assert(!std::convertible_to<const floats&, mw::device_scatter_list>);
static_assert(!std::convertible_to<floats, mw::device_gather_list>);
static_assert(!std::convertible_to<floats, mw::device_scatter_list>);
static_assert(std::convertible_to<mw::untyped_device_buffer&, mw::device_scatter_list>);
static_assert(!std::copy_constructible<floats> && std::movable<floats>);

namespace {

std::string refusal(auto&& make) {
  try {
    make();
  } catch (const mw::device_error& e) {
    return e.what();
  }
  return "accepted";
}

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE_BEGIN("device_buffer");

TEST_CASE("a device that is not there is named, with how many there are") {
  NEEDS_DEVICE();
  for (const int wrong : {-1, 4711}) {
    const std::string said = refusal([&] { mw::device_pool pool(wrong); });
    CHECK(has(said, std::to_string(wrong).c_str()));
    CHECK(has(said, "there is no such device; there are "));
    CHECK(has(refusal([&] { mw::owned_stream stream(wrong); }), "no such device"));
  }
}

TEST_CASE("a pool that was moved from is the same pool") {
  NEEDS_DEVICE();
  mw::device_pool first(0);
  const mw::device_pool second = std::move(first);
  CHECK(first.device() == second.device());
  CHECK(first.held() == second.held());
  first.trim();
  mw::pinned_pool pinned;
  const mw::pinned_pool other = std::move(pinned);
  const mw::pinned_buffer<float> x(pinned, 8);
  CHECK(other.used() == pinned.used());
  CHECK(other.used() > 0);
}

TEST_CASE("a buffer's memory is its pool's, and on the pool's device") {
  NEEDS_DEVICE();
  const mw::device_pool pool(0);
  const mw::owned_stream stream(0);
  floats x(pool, 1000, stream);
  CHECK(x.count() == 1000);
  CHECK(x.type() == mw::dtype::float32);
  CHECK(x.size_bytes() == 4000);
  CHECK(x.stream() == mw::device_stream(stream.handle()));
  CHECK(pool.used() >= 4000);
  CHECK(pool.held() >= pool.used());
  cudaPointerAttributes where = {};
  REQUIRE(mw::testing::cuda().cudaPointerGetAttributes(&where, x.data()) == cudaSuccess);
  CHECK(where.type == cudaMemoryTypeDevice);
  CHECK(where.device == pool.device());
}

TEST_CASE("a buffer is given back when its stream gets there, not before") {
  NEEDS_DEVICE();
  const mw::device_pool pool(0);
  const mw::owned_stream stream(0);
  {
    gate busy(stream);
    {
      const floats x(pool, 1 << 20, stream);
      CHECK(pool.used() >= 4 << 20);
    }
    // CUDA does not promise that what is freed and in use counts as used.
    if (mw::testing::is_emulated()) {
      CHECK(!mw::testing::eventually([&] { return pool.used() == 0; },
                                     std::chrono::milliseconds(100)));
    }
  }
  CHECK(mw::testing::eventually([&] { return pool.used() == 0; },
                                std::chrono::seconds(20)));
}

TEST_CASE("a pool keeps what buffers gave back until it is trimmed") {
  NEEDS_DEVICE();
  const mw::device_pool pool(0);
  const mw::owned_stream stream(0);
  { const floats x(pool, 1 << 20, stream); }
  REQUIRE(mw::testing::eventually([&] { return pool.used() == 0; },
                                  std::chrono::seconds(20)));
  // The emulation keeps nothing.
  if (!mw::testing::is_emulated()) CHECK(pool.held() >= 4 << 20);
  pool.trim();
  CHECK(pool.held() == 0);
}

TEST_CASE("a buffer keeps its pool") {
  NEEDS_DEVICE();
  const mw::owned_stream stream(0);
  floats x;
  {
    const mw::device_pool pool(0);
    x = floats(pool, 64, stream);
  }
  CHECK(mw::testing::cuda().cudaMemcpyAsync(x.data(), x.data() + 32, 128,
                                            cudaMemcpyDefault,
                                            stream.handle()) == cudaSuccess);
}

TEST_CASE("what was moved from is empty, and one that is assigned to gives back first") {
  NEEDS_DEVICE();
  const mw::device_pool pool(0);
  const mw::owned_stream stream(0);
  floats x(pool, 64, stream);
  const float* const at = x.data();
  floats y(std::move(x));
  CHECK(y.data() == at);
  CHECK(x.empty());
  CHECK(x.data() == nullptr);
  floats z(pool, 1 << 20, stream);
  z = std::move(y);
  CHECK(z.data() == at);
  CHECK(mw::testing::eventually([&] { return pool.used() < 4 << 20; },
                                std::chrono::seconds(20)));
}

TEST_CASE("views of a buffer are of its elements, on its stream or another") {
  NEEDS_DEVICE();
  const mw::device_pool pool(0);
  const mw::owned_stream stream(0);
  const mw::owned_stream other(0);
  mw::untyped_device_buffer x(pool, 100, mw::dtype::bfloat16, stream);
  CHECK(x.view().data() == x.data());
  CHECK(x.view().count() == 100);
  CHECK(x.view(other).stream() == mw::device_stream(other.handle()));
  CHECK(x.slice(50, 10).data() == static_cast<std::byte*>(x.data()) + 100);
  CHECK_THROWS_AS((void)x.slice(95, 10), std::out_of_range);
  mw::device_gather_list list(x);
  CHECK(list.total_bytes() == 200);
}

TEST_CASE("a buffer without elements needs no memory, one without a stream is refused") {
  NEEDS_DEVICE();
  const mw::device_pool pool(0);
  const mw::owned_stream stream(0);
  const floats none(pool, 0, stream);
  CHECK(none.empty());
  CHECK(pool.used() == 0);
  CHECK_THROWS_AS(floats(pool, 1, mw::device_stream()), std::invalid_argument);
  CHECK_THROWS_AS(floats(pool, SIZE_MAX / 2, stream), std::invalid_argument);
}

TEST_CASE("more than a device has is an error that says so, and the next buffer is had") {
  NEEDS_DEVICE();
  const mw::device_pool pool(0);
  const mw::owned_stream stream(0);
  // 4 PiB.
  const std::string said = refusal([&] { floats(pool, std::size_t{1} << 50, stream); });
  CHECK(has(said, "a device_buffer of 4503599627370496 bytes on device 0"));
  CHECK(has(said, "cudaErrorMemoryAllocation"));
  CHECK(has(said, "trim()"));
  CHECK(mw::testing::cuda().cudaGetLastError() == cudaSuccess);
  CHECK(floats(pool, 1, stream).count() == 1);
}
