// Tensors as the arguments of a world's operations.
#include "manyworlds/memory/tensor.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

tensor numbered(float first, shape of) {
  tensor made(of, dtype::float32);
  for (float& each : made.as<float>()) each = first++;
  return made;
}

/// Does each operation once, and returns an element of what each gave.
task<std::vector<float>> use_each(world& w) {
  const bool is_first = w.rank() == 0;
  tensor x = numbered(is_first ? 1 : 10, {2, 2});
  tensor y({4}, dtype::float32);
  tensor both({2, 4}, dtype::float32);
  tensor swapped({2, 4}, dtype::float32);
  std::vector<float> got;
  if (is_first) {
    co_await w.send(x, to{1}, lane{3});
    co_await w.recv(y, from{1});
  } else {
    co_await w.recv(y, from{0}, lane{3});
    co_await w.send(x, to{0});
  }
  got.push_back(y.as<float>()[3]);
  co_await w.broadcast(y, root{0});
  got.push_back(y.as<float>()[0]);
  co_await w.all_reduce(x, y, sum);
  got.push_back(y.as<float>()[0]);
  co_await w.all_reduce(y, max).within(10s);
  got.push_back(y.as<float>()[1]);
  co_await w.all_gather(x, both);
  got.push_back(both.as<float>()[7]);
  co_await w.reduce(x, y, sum, root{0});
  co_await w.reduce(y, sum, root{1});
  got.push_back(y.as<float>()[0]);
  co_await w.gather(x, both, root{1});
  co_await w.scatter(both, x, root{1});
  got.push_back(x.as<float>()[1]);
  co_await w.all_to_all(both, swapped);
  got.push_back(swapped.as<float>()[4]);
  co_await w.reduce_scatter(both, x, sum);
  got.push_back(x.as<float>()[0]);
  co_return got;
}

}  // namespace

TEST_CASE("tensors: each operation takes them as views of their elements") {
  pair p;
  auto one = p.a.rt.start(use_each(p.wa));
  auto two = p.b.rt.start(use_each(p.wb));
  const std::vector<float> first{13, 10, 11, 13, 13, 11, 2, 1, 2};
  const std::vector<float> second{4, 10, 11, 13, 13, 22, 11, 10, 20};
  CHECK(p.a.finish(one) == first);
  CHECK(p.b.finish(two) == second);
}

TEST_CASE("tensors: elements of another type are a mismatch, as of any view") {
  pair p;
  auto give = [](world& w) -> task<void> {
    const tensor x = numbered(1, {4});
    co_await w.send(x, to{1});
  };
  auto take = [](world& w) -> task<cause> {
    tensor y({4}, dtype::int32);
    tensor z({4}, dtype::float32);
    const cause refused = (co_await outcome(w.recv(y, from{0}))).error().cause;
    co_await w.recv(z, from{0});
    co_return refused;
  };
  auto giving = p.a.rt.start(give(p.wa));
  CHECK(p.b.run(take(p.wb)) == cause::type_mismatch);
  p.a.finish(giving);
}

TEST_CASE("tensors: one on a device is refused by a world of host memory") {
  pair p;
  auto use = [](world& w) -> task<cause> {
    float elements[4];
    auto* const stream = reinterpret_cast<CUstream_st*>(std::uintptr_t{16});
    tensor x({4}, device_view(elements, 4, stream), 0, nullptr);
    co_return (co_await outcome(w.send(x, to{1}))).error().cause;
  };
  CHECK(p.a.run(use(p.wa)) == cause::unsupported);
  auto mix = [](world& w) -> task<void> {
    float elements[4];
    auto* const stream = reinterpret_cast<CUstream_st*>(std::uintptr_t{16});
    tensor x({4}, device_view(elements, 4, stream), 0, nullptr);
    tensor y({4}, dtype::float32);
    co_await w.all_reduce(x, y, sum);
  };
  CHECK_THROWS_AS(p.a.run(mix(p.wa)), std::invalid_argument);
  CHECK(p.wa.state() == world_state::up);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
