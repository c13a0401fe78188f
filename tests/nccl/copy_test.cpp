#include "manyworlds/nccl/copy.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

#include "io/reactor_fixture.hpp"
#include "manyworlds/nccl/device_buffer.hpp"
#include "manyworlds/nccl/on.hpp"
#include "manyworlds/nccl/owned_stream.hpp"
#include "manyworlds/nccl/pinned_pool.hpp"
#include "nccl/device_fixture.hpp"
#include "support/eventually.hpp"

namespace mw = manyworlds;
using namespace mw::testing;

namespace {

// Of ordinary memory several slices and a rest.
constexpr std::size_t several_slices = (256 * 1024 * 3 + 4096) / sizeof(float) + 1;

struct memory {
  mw::device_pool pool{0};
  mw::pinned_pool pinned{
      mw::pinned_pool_options{.device = 0, .limit = std::size_t{64} << 20}};
  mw::owned_stream stream{0};
  mw::owned_stream other{0};
  reactor_fixture reactor{mw::engine_kind::epoll};
};

template <class To, class From>
mw::task<void> copy_to(To& to, From& from) {
  co_await mw::copy(to, from);
}

template <class To>
mw::task<void> fill(To& to, std::vector<float> numbers) {
  co_await mw::copy(to, numbers);
}

template <class From>
std::vector<float> contents(memory& m, From& from) {
  std::vector<float> numbers(from.count(), -1);
  m.reactor.run(copy_to(numbers, from));
  return numbers;
}

}  // namespace

TEST_SUITE_BEGIN("copy");

TEST_CASE("pinned and ordinary memory go to a device and come back") {
  NEEDS_DEVICE();
  memory m;
  const auto numbers = counting(several_slices);
  mw::device_buffer<float> x(m.pool, several_slices, m.stream);
  m.reactor.run(copy_to(x, numbers));
  mw::pinned_buffer<float> back(m.pinned, several_slices);
  m.reactor.run(copy_to(back, x));
  CHECK(std::equal(back.begin(), back.end(), numbers.begin(), numbers.end()));

  mw::device_buffer<float> y(m.pool, several_slices, m.stream);
  m.reactor.run(copy_to(y, back));
  CHECK(contents(m, y) == numbers);
}

TEST_CASE("a copy comes after what is on its stream") {
  NEEDS_DEVICE();
  memory m;
  for (const bool is_pinned : {true, false}) {
    CAPTURE(is_pinned);
    mw::device_buffer<float> x(m.pool, 1000, m.stream);
    m.reactor.run(fill(x, counting(1000, 5)));
    std::vector<float> ordinary(1000, -1);
    mw::pinned_buffer<float> pinned(m.pinned, 1000);
    std::fill(pinned.begin(), pinned.end(), -1.0F);
    gate busy(m.stream);
    running<void> copy(m.reactor, is_pinned ? copy_to(pinned, x) : copy_to(ordinary, x));
    for (int i = 0; i < 2000; ++i) (void)m.reactor.get().turn();
    CHECK(!copy.ended());
    CHECK((is_pinned ? pinned[0] : ordinary[0]) == -1);
    busy.open();
    m.reactor.run_until([&] { return copy.ended(); });
    copy.result();
    CHECK((is_pinned ? pinned[999] : ordinary[999]) == 1004);
  }
}

TEST_CASE("between two streams a copy comes after what is on either") {
  NEEDS_DEVICE();
  memory m;
  mw::device_buffer<float> from(m.pool, 1000, m.stream);
  mw::device_buffer<float> to(m.pool, 1000, m.other);
  mw::pinned_buffer<float> numbers(m.pinned, 1000);
  std::fill(numbers.begin(), numbers.end(), 7.0F);
  gate source_busy(m.stream);
  REQUIRE(cuda().cudaMemcpyAsync(from.data(), numbers.data(), from.size_bytes(),
                                 cudaMemcpyDefault, m.stream.handle()) == cudaSuccess);
  running<void> copy(m.reactor, copy_to(to, from));
  // One behind the other, so that the copy is on its stream when this has ended.
  const mw::owned_stream third(0);
  m.reactor.run(wait_for(third));
  CHECK(!eventually(
      [&] { return cuda().cudaStreamQuery(m.other.handle()) == cudaSuccess; }, 100ms));
  source_busy.open();
  m.reactor.run_until([&] { return copy.ended(); });
  copy.result();
  CHECK(contents(m, to) == std::vector<float>(1000, 7));
}

TEST_CASE("a copy between two devices arrives") {
  NEEDS_DEVICE();
  int devices = 0;
  REQUIRE(cuda().cudaGetDeviceCount(&devices) == cudaSuccess);
  if (devices < 2) {
    MESSAGE("skipped: there is one device");
    return;
  }
  memory m;
  const mw::device_pool far_pool(1);
  const mw::owned_stream far_stream(1);
  mw::device_buffer<float> here(m.pool, 1000, m.stream);
  mw::device_buffer<float> there(far_pool, 1000, far_stream);
  m.reactor.run(fill(here, counting(1000)));
  m.reactor.run(copy_to(there, here));
  CHECK(contents(m, there) == counting(1000));
}

TEST_CASE("law 4: a cancelled copy of pinned memory ends when nothing touches it") {
  NEEDS_DEVICE();
  memory m;
  mw::device_buffer<float> x(m.pool, 1000, m.stream);
  m.reactor.run(fill(x, counting(1000)));
  mw::pinned_buffer<float> to(m.pinned, 1000);
  gate busy(m.stream);
  running<void> copy(m.reactor, copy_to(to, x));
  // It has begun when one that was started behind it has ended.
  m.reactor.run(wait_for(m.other));
  copy.cancel();
  for (int i = 0; i < 2000; ++i) (void)m.reactor.get().turn();
  CHECK(!copy.ended());
  busy.open();
  m.reactor.run_until([&] { return copy.ended(); });
  CHECK(copy.cancelled());
  CHECK(to[999] == 999);
}

TEST_CASE("a cancelled copy of ordinary memory begins no further slice") {
  NEEDS_DEVICE();
  memory m;
  mw::device_buffer<float> x(m.pool, several_slices, m.stream);
  m.reactor.run(fill(x, std::vector<float>(several_slices, 1)));
  const std::vector<float> twos(several_slices, 2);
  {
    gate busy(m.stream);
    running<void> copy(m.reactor, copy_to(x, twos));
    for (int i = 0; i < 100; ++i) (void)m.reactor.get().turn();
    copy.cancel();
    busy.open();
    m.reactor.run_until([&] { return copy.ended(); });
    CHECK(copy.cancelled());
  }
  CHECK(contents(m, x) == std::vector<float>(several_slices, 1));
}

TEST_CASE(
    "law 9: a long copy of ordinary memory holds up neither turns nor other copies") {
  NEEDS_DEVICE();
  memory m;
  constexpr std::size_t very_many = several_slices * 16;
  mw::device_buffer<float> x(m.pool, very_many, m.stream);
  mw::device_buffer<float> y(m.pool, 1000, m.other);
  const auto numbers = counting(very_many);
  m.reactor.run(fill(x, numbers));
  m.reactor.run(fill(y, counting(1000, 3)));
  std::vector<float> to(very_many, -1);
  std::vector<float> little(1000, -1);
  std::vector<std::size_t> ended;
  const auto copies = [&](auto& into, auto& from) -> mw::task<void> {
    co_await mw::copy(into, from);
    ended.push_back(into.size());
  };
  gate little_busy(m.other);
  gate busy(m.stream);
  running<void> copy(m.reactor, copies(to, x));
  running<void> little_copy(m.reactor, copies(little, y));
  little_busy.open();
  busy.open();
  // Both streams are done before the reactor turns: which copy ends first is its choice.
  const auto is_done = [](mw::device_stream stream) {
    return eventually(
        [&] { return cuda().cudaStreamQuery(stream.handle()) == cudaSuccess; }, 20s);
  };
  REQUIRE(is_done(m.stream));
  REQUIRE(is_done(m.other));
  m.reactor.run_until([&] { return copy.ended() && little_copy.ended(); });
  CHECK(to == numbers);
  CHECK(little == counting(1000, 3));
  // Between two slices of the other's.
  CHECK(ended == std::vector<std::size_t>{1000, very_many});
}

TEST_CASE("views of different bytes are refused at once, of different types are not") {
  NEEDS_DEVICE();
  memory m;
  mw::device_buffer<float> x(m.pool, 100, m.stream);
  mw::device_buffer<double> y(m.pool, 50, m.stream);
  std::vector<float> few(99);
  CHECK_THROWS_AS((void)mw::copy(x, few), std::invalid_argument);
  CHECK_THROWS_AS((void)mw::copy(few, x), std::invalid_argument);
  m.reactor.run(fill(x, counting(100)));
  CHECK_NOTHROW(m.reactor.run(copy_to(y, x)));
  std::vector<float> back(100);
  m.reactor.run(copy_to(back, y));
  CHECK(back == counting(100));
}

TEST_CASE("a copy of nothing ends at once") {
  NEEDS_DEVICE();
  memory m;
  mw::device_buffer<float> x(m.pool, 0, m.stream);
  std::vector<float> none;
  gate busy(m.stream);
  CHECK_NOTHROW(m.reactor.run(copy_to(none, x)));
}

TEST_CASE(
    "host memory that is said to be a device's is refused, and memory without stream") {
  NEEDS_DEVICE();
  memory m;
  std::vector<float> host(100);
  std::vector<float> more(100);
  mw::device_view wrong(host.data(), 100, m.stream);
  CHECK_THROWS_AS(m.reactor.run(copy_to(wrong, more)), std::invalid_argument);
  mw::device_buffer<float> x(m.pool, 100, m.stream);
  mw::const_device_view nowhere = x.view(mw::device_stream());
  CHECK_THROWS_AS(m.reactor.run(copy_to(more, nowhere)), std::invalid_argument);
  CHECK_THROWS_AS(m.reactor.run(copy_to(x, nowhere)), std::invalid_argument);
}
