#include "manyworlds/nccl/pinned_pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "manyworlds/memory/gather_list.hpp"
#include "nccl/device_fixture.hpp"

namespace mw = manyworlds;

using pinned_bytes = mw::pinned_buffer<std::uint8_t>;

static_assert(std::convertible_to<pinned_bytes&, mw::buffer_view>);
static_assert(std::convertible_to<const pinned_bytes&, mw::const_buffer_view>);
static_assert(!std::convertible_to<const pinned_bytes&, mw::buffer_view>);
static_assert(!std::convertible_to<pinned_bytes, mw::gather_list>);
static_assert(!std::copy_constructible<pinned_bytes> && std::movable<pinned_bytes>);

namespace {

constexpr std::size_t kib = 1024;

mw::pinned_pool_options small() {
  return {.device = 0, .limit = 256 * kib, .slab = 64 * kib};
}

}  // namespace

TEST_SUITE_BEGIN("pinned_pool");

TEST_CASE("a pinned buffer is host memory that CUDA knows") {
  NEEDS_DEVICE();
  const mw::pinned_pool pool;
  mw::pinned_buffer<float> x(pool, 1000);
  std::iota(x.begin(), x.end(), 0.0F);
  CHECK(x[999] == 999);
  CHECK(mw::buffer_view(x).count() == 1000);
  CHECK(reinterpret_cast<std::uintptr_t>(x.data()) % 64 == 0);
  cudaPointerAttributes where = {};
  REQUIRE(mw::testing::cuda().cudaPointerGetAttributes(&where, x.data()) == cudaSuccess);
  CHECK(where.type == cudaMemoryTypeHost);
}

TEST_CASE("no two buffers share a byte, whatever their sizes") {
  NEEDS_DEVICE();
  const mw::pinned_pool pool(mw::pinned_pool_options{
      .device = 0, .limit = std::size_t{64} << 20, .slab = 64 * kib});
  std::vector<pinned_bytes> held;
  for (std::size_t size = 1; size < 200 * kib; size = size * 5 / 4 + 1) {
    held.emplace_back(pool, size);
    held.emplace_back(pool, size);
    if (held.size() % 3 == 0) held.erase(held.begin());
  }
  for (std::size_t i = 0; i < held.size(); ++i) {
    std::fill(held[i].begin(), held[i].end(), static_cast<std::uint8_t>(i));
  }
  for (std::size_t i = 0; i < held.size(); ++i) {
    const auto wrong = std::find_if(held[i].begin(), held[i].end(), [i](auto byte) {
      return byte != static_cast<std::uint8_t>(i);
    });
    CHECK(wrong == held[i].end());
  }
}

TEST_CASE("what is given back is used again, without asking CUDA for more") {
  NEEDS_DEVICE();
  const mw::pinned_pool pool(small());
  const std::uint8_t* at = nullptr;
  {
    const pinned_bytes x(pool, 1000);
    at = x.data();
  }
  const std::size_t held = pool.held();
  CHECK(held > 0);
  CHECK(held <= 64 * kib);
  for (int i = 0; i < 1000; ++i) {
    const pinned_bytes x(pool, 1000);
    CHECK(x.data() == at);
  }
  CHECK(pool.held() == held);
  CHECK(pool.used() == 0);
  pool.trim();
  CHECK(pool.held() == 0);
}

TEST_CASE("a buffer is at most a quarter larger than was asked for") {
  NEEDS_DEVICE();
  const mw::pinned_pool pool;
  for (const std::size_t size : {257UL, 1000UL, 4097UL, 100'000UL, 1'100'000UL}) {
    const pinned_bytes x(pool, size);
    CHECK(pool.used() >= size);
    CHECK(pool.used() * 4 <= size * 5);
  }
}

TEST_CASE("beyond its limit the pool is an error that says what to raise") {
  NEEDS_DEVICE();
  const mw::pinned_pool pool(small());
  const pinned_bytes first(pool, 160 * kib);
  try {
    const pinned_bytes second(pool, 100 * kib);
    FAIL("it was had");
  } catch (const mw::device_error& e) {
    const std::string said = e.what();
    CHECK(said.find("pinned_pool_options::limit") != std::string::npos);
    CHECK(said.find(std::to_string(256 * kib)) != std::string::npos);
  }
  CHECK(pinned_bytes(pool, 60 * kib).size() == 60 * kib);
  CHECK_THROWS_AS(pinned_bytes(pool, SIZE_MAX / 2), mw::device_error);
}

TEST_CASE("unused memory of one size makes room for another within the limit") {
  NEEDS_DEVICE();
  const mw::pinned_pool pool(small());
  { const pinned_bytes large(pool, 200 * kib); }
  { const pinned_bytes other(pool, 220 * kib); }
  const pinned_bytes small_one(pool, 1000);
  CHECK(pool.held() <= 256 * kib);
}

TEST_CASE("slabs that make no sense are refused") {
  NEEDS_DEVICE();
  for (const std::size_t slab : {0UL, 1000UL, 2048UL, 6144UL, 512 * kib}) {
    auto options = small();
    options.slab = slab;
    CHECK_THROWS_AS(mw::pinned_pool{options}, std::invalid_argument);
  }
}

TEST_CASE("buffers outlive the pool and may be moved and dropped on any thread") {
  NEEDS_DEVICE();
  pinned_bytes kept;
  {
    const mw::pinned_pool pool;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&pool, t] {
        for (std::size_t i = 1; i < 500; ++i) {
          pinned_bytes x(pool, i * 7);
          x[0] = static_cast<std::uint8_t>(t);
          pinned_bytes y(std::move(x));
          if (y[0] != t) throw std::logic_error("another thread's byte");
        }
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK(pool.used() == 0);
    kept = pinned_bytes(pool, 100);
  }
  kept[99] = 1;
  CHECK(kept[99] == 1);
}
