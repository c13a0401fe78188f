#include "manyworlds/memory/gather_list.hpp"

#include <doctest/doctest.h>

#include <array>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <list>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace mw = manyworlds;

namespace {

using floats = std::vector<float>;
using views = std::vector<mw::buffer_view>;

// A type of a user's own, convertible to a view.
struct block {
  floats memory = floats(4);
  operator mw::buffer_view() { return memory; }
};

// Four floats a page, each described when it is asked for.
class pages {
 public:
  class iterator {
   public:
    using value_type = std::span<float>;
    using difference_type = std::ptrdiff_t;
    iterator() = default;
    explicit iterator(float* at) : at_{at} {}
    value_type operator*() const { return {at_, 4}; }
    iterator& operator++() { return at_ += 4, *this; }
    iterator operator++(int) { return iterator{std::exchange(at_, at_ + 4)}; }
    bool operator==(const iterator&) const = default;

   private:
    float* at_ = nullptr;
  };

  pages(floats& memory, std::size_t size) : memory_{memory}, size_{size} {}
  iterator begin() const { return iterator{memory_.data()}; }
  iterator end() const { return iterator{memory_.data() + 4 * size_}; }

 private:
  floats& memory_;
  std::size_t size_;
};

std::vector<const void*> places(const mw::gather_list& list) {
  std::vector<const void*> all;
  for (std::size_t i = 0; i < list.views().size(); ++i)
    all.push_back(list.views()[i].data());
  return all;
}

std::vector<const void*> sent(mw::gather_list list) { return places(list); }

}  // namespace

TEST_SUITE_BEGIN("gather_list");

static_assert(mw::readable_buffer<floats&> && mw::readable_buffer<const floats&>);
static_assert(mw::readable_buffer<std::span<const float>> &&
              mw::readable_buffer<mw::buffer_view>);
static_assert(mw::readable_buffer<const std::vector<floats>&> &&
              mw::readable_buffer<views>);
static_assert(mw::readable_buffer<mw::view_batch> &&
              mw::readable_buffer<mw::const_view_list>);
static_assert(mw::readable_buffer<std::span<const mw::const_buffer_view>>);
static_assert(mw::writable_buffer<floats&> && mw::writable_buffer<mw::view_batch&>);
static_assert(mw::writable_buffer<block&> && mw::writable_buffer<std::list<block>&>);
static_assert(mw::writable_buffer<float (&)[3][4]>);

static_assert(!mw::writable_buffer<const floats&> &&
              !mw::writable_buffer<mw::const_view_batch&>);
static_assert(!mw::writable_buffer<const std::vector<floats>&>);

// Elements that die with the full expression, alone or within a temporary list.
static_assert(!mw::readable_buffer<floats> && !mw::readable_buffer<std::vector<floats>>);
static_assert(!std::is_convertible_v<floats, mw::gather_list>);
static_assert(!std::is_convertible_v<std::vector<floats>, mw::gather_list>);
static_assert(!std::is_convertible_v<const char (&)[4], mw::gather_list>);
static_assert(!mw::readable_buffer<int> &&
              !mw::readable_buffer<std::vector<std::string*>&>);

static_assert(!std::is_copy_constructible_v<mw::gather_list>);
static_assert(std::is_nothrow_move_constructible_v<mw::gather_list>);
static_assert(!std::is_aggregate_v<mw::gather_list>);

TEST_CASE("one view, a braced list and a range of views become the same thing") {
  floats a(2), b(3), c(4);
  CHECK(sent(a) == std::vector<const void*>{a.data()});
  CHECK(sent({a, b}) == std::vector<const void*>{a.data(), b.data()});
  CHECK(sent({a, b, c}) == std::vector<const void*>{a.data(), b.data(), c.data()});
  CHECK(sent(mw::view_batch{a, b, c}) ==
        std::vector<const void*>{a.data(), b.data(), c.data()});
  CHECK(sent({}).empty());

  std::list<block> blocks(3);
  std::vector<const void*> expected;
  for (auto& each : blocks) expected.push_back(each.memory.data());
  const mw::scatter_list into{blocks};
  CHECK(into.views().size() == 3);
  CHECK(into.count() == 12);
  for (std::size_t i = 0; i < 3; ++i) CHECK(into.views()[i].data() == expected[i]);

  const std::vector<floats> nested{floats(2), floats(3), floats(5)};
  CHECK(mw::gather_list{nested}.count() == 10);
  CHECK(mw::gather_list{nested}.type() == mw::dtype::float32);
}

TEST_CASE("a temporary range that computes views over named memory is copied") {
  floats memory(12);
  const mw::scatter_list three{pages{memory, 3}};
  CHECK(three.views().size() == 3);
  CHECK(three.views()[2].data() == memory.data() + 8);
  const mw::scatter_list two{pages{memory, 2}};
  CHECK(two.count() == 8);
  CHECK(mw::scatter_list{pages{memory, 0}}.total_bytes() == 0);
}

TEST_CASE("a named list is referred to, a temporary one is moved in") {
  floats a(2), b(3), c(4);
  views named{a, b, c};
  const mw::scatter_list referring{named};
  CHECK(&referring.views()[0] == named.data());
  const mw::gather_list reading{named};
  CHECK(&reading.views()[0] == named.data());

  const auto* const storage = named.data();
  const mw::scatter_list moved{std::move(named)};
  CHECK(&moved.views()[0] == storage);

  mw::view_batch batch{a, b, c};
  const auto* const held = batch.data();
  const mw::scatter_list from_batch{std::move(batch)};
  CHECK(&from_batch.views()[0] == held);
}

TEST_CASE("a moved list keeps its views wherever they lie") {
  floats a(2), b(3), c(4);
  for (std::size_t size = 0; size <= 3; ++size) {
    views all{a, b, c};
    all.resize(size);
    const std::list<mw::buffer_view> scattered(all.begin(), all.end());
    mw::scatter_list first{scattered};
    mw::scatter_list second{std::move(first)};
    mw::scatter_list third;
    third = std::move(second);
    CHECK(first.views().size() == 0);
    CHECK(second.total_bytes() == 0);
    REQUIRE(third.views().size() == size);
    const auto* const object = reinterpret_cast<const std::byte*>(&third);
    for (std::size_t i = 0; i < size; ++i) {
      CHECK(third.views()[i].data() == all[i].data());
      const auto* const view = reinterpret_cast<const std::byte*>(&third.views()[i]);
      const bool inside = view >= object && view < object + sizeof third;
      CHECK(inside == (size <= 2));
    }
  }
}

namespace {

// The least of a coroutine that runs an awaited expression over a suspension.
struct fire {
  struct promise_type {
    fire get_return_object() {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
};

class operation {
 public:
  operation(mw::gather_list buffers, std::vector<const void*>& seen)
      : buffers_{std::move(buffers)}, seen_{seen} {}
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<>) noexcept {}
  void await_resume() { seen_ = places(buffers_); }

 private:
  mw::gather_list buffers_;
  std::vector<const void*>& seen_;
};

operation send(mw::gather_list buffers, std::vector<const void*>& seen) {
  return {std::move(buffers), seen};
}

fire three_sends(floats& a, floats& b, std::vector<const void*>& seen) {
  co_await send(mw::view_batch{a, b, a}, seen);
  co_await send({b, a, b, a}, seen);
  co_await send(views(5, a), seen);
}

}  // namespace

TEST_CASE(
    "a temporary batch in an awaited expression lives, once, until the await ends") {
  floats a(2), b(3);
  const void* const pa = a.data();
  const void* const pb = b.data();
  std::vector<const void*> seen;
  const auto run = three_sends(a, b, seen);
  run.handle.resume();
  CHECK(seen == std::vector<const void*>{pa, pb, pa});
  run.handle.resume();
  CHECK(seen == std::vector<const void*>{pb, pa, pb, pa});
  run.handle.resume();
  CHECK(seen == std::vector<const void*>(5, pa));
  run.handle.destroy();
}

TEST_SUITE_END();
