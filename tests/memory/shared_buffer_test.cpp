#include "manyworlds/memory/shared_buffer.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>
#include <vector>

#include "manyworlds/memory/buffer_view.hpp"
#include "support/entries.hpp"

using namespace manyworlds;

TEST_SUITE_BEGIN("shared_buffer");

namespace {

using testing::open_descriptors;

/// A pool of at least one granule, and who knows it.
struct known_pool {
  explicit known_pool(std::size_t bytes = pool_memory::granule)
      : registry(std::make_shared<pool_registry>()), pool(registry, bytes) {}
  std::shared_ptr<pool_registry> registry;
  shared_pool pool;
};

}  // namespace

TEST_CASE("buffers lie side by side on lines of their own, and come back as one") {
  known_pool k;
  shared_buffer a = k.pool.allocate(1);
  shared_buffer b = k.pool.allocate(65);
  shared_buffer c = k.pool.allocate(64);
  CHECK(b.data() - a.data() == 64);
  CHECK(c.data() - b.data() == 128);
  CHECK(reinterpret_cast<std::uintptr_t>(a.data()) % 64 == 0);
  b = {};
  CHECK_THROWS_AS((void)k.pool.allocate(k.pool.size()), std::bad_alloc);
  a = {};
  c = {};
  shared_buffer all = k.pool.allocate(k.pool.size());
  CHECK(all.size() == k.pool.size());
  std::memset(all.data(), 7, all.size());
  CHECK_THROWS_AS((void)k.pool.allocate(1), std::bad_alloc);
}

TEST_CASE("what was given back is given out again, the lowest first") {
  known_pool k;
  std::vector<shared_buffer> many;
  for (int i = 0; i < 100; ++i) many.push_back(k.pool.allocate(1000));
  std::byte* const first = many[10].data();
  many[10] = {};
  many[50] = {};
  shared_buffer again = k.pool.allocate(900);
  CHECK(again.data() == first);
}

TEST_CASE("a shared buffer is a buffer as any other") {
  known_pool k;
  shared_buffer memory = k.pool.allocate(40);
  const buffer_view bytes(memory);
  CHECK(bytes.data() == memory.data());
  CHECK(bytes.count() == 40);
  CHECK(bytes.type() == dtype::uint8);
  const std::span<float> floats = memory.as<float>();
  CHECK(floats.size() == 10);
  const buffer_view numbers(floats);
  CHECK(numbers.type() == dtype::float32);
  CHECK(numbers.count() == 10);
  CHECK(k.pool.allocate(0).size() == 0);
}

TEST_CASE("its memory is found by what lies in it, as long as it is held") {
  known_pool k;
  REQUIRE_MESSAGE(k.pool.refusal().empty(), k.pool.refusal());
  std::uint64_t id = 0;
  shared_buffer held;
  {
    shared_pool other(k.registry, 1);
    held = other.allocate(100);
    const auto found = k.registry->find(held.data() + 10, 90);
    REQUIRE(found);
    id = found->id();
    CHECK(found->offset_of(held.data() + 10) == 10);
    CHECK_FALSE(k.registry->find(held.data(), other.size() + 1));
  }
  // The pool's handle is gone, its buffer is not.
  CHECK(k.registry->find(held.data(), 100));
  CHECK(k.registry->has(id));
  int other = 0;
  CHECK_FALSE(k.registry->find(&other, sizeof other));
  const std::uint64_t before = k.registry->removals();
  held = {};
  CHECK_FALSE(k.registry->has(id));
  CHECK(k.registry->removals() != before);
}

TEST_CASE(
    "law 11: a process that gets its descriptor can neither write to it nor cut it off") {
  known_pool k;
  REQUIRE_MESSAGE(k.pool.refusal().empty(), k.pool.refusal());
  shared_buffer memory = k.pool.allocate(100);
  const int fd = k.registry->find(memory.data(), 1)->descriptor();
  CHECK(::ftruncate(fd, 0) != 0);
  CHECK(::ftruncate(fd, static_cast<off_t>(2 * k.pool.size())) != 0);
  CHECK(::write(fd, "x", 1) < 0);
  CHECK(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0);
  void* writable =
      ::mmap(nullptr, k.pool.size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(writable == MAP_FAILED);
  CHECK(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) != 0);
}

TEST_CASE("a pool of no bytes, of no runtime or of all addresses is refused") {
  const auto registry = std::make_shared<pool_registry>();
  CHECK_THROWS_AS(shared_pool(registry, 0), std::invalid_argument);
  CHECK_THROWS_AS(shared_pool(nullptr, 1), std::invalid_argument);
  CHECK_THROWS_AS(shared_pool(registry, ~std::size_t{0}), std::bad_alloc);
}

TEST_CASE("a pool that was moved from or copied is the same pool") {
  const auto registry = std::make_shared<pool_registry>();
  shared_pool first(registry, 1 << 16);
  const shared_pool second = std::move(first);
  CHECK(first.size() == second.size());
  CHECK(first.refusal() == second.refusal());
  CHECK(first.allocate(8).size() == 8);
}

TEST_CASE("law 6: a thousand pools leave nothing behind") {
  const auto registry = std::make_shared<pool_registry>();
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 1000; ++i) {
    shared_pool pool(registry, 1);
    shared_buffer memory = pool.allocate(1);
    memory.data()[0] = std::byte{1};
  }
  CHECK(open_descriptors() == before);
}

TEST_SUITE_END();
