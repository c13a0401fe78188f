// What the workers of a mesh do together with tensors that stay on them (disco A16 to
// A29).
#include <algorithm>

#include "session_fixture.hpp"

namespace manyworlds::spmd_tests {

namespace {

tensor numbers(std::int64_t count, float first) {
  tensor x(count, dtype::float32);
  for (float& each : x.as<float>()) each = first++;
  return x;
}

task<std::vector<float>> at(const mesh& of, const dref<tensor>& x, int worker) {
  const tensor copy = co_await of.copy_from(x, worker);
  co_return std::vector<float>(copy.as<float>().begin(), copy.as<float>().end());
}

std::vector<float> floats(std::int64_t count, float first) {
  const tensor x = numbers(count, first);
  return {x.as<float>().begin(), x.as<float>().end()};
}

}  // namespace

TEST_CASE("disco A16, A18, A20, A22, A26: collectives on tensors of a session") {
  in_each_kind(2, [](session& s) -> task<void> {
    const tensor six = numbers(6, 1);
    const dref<tensor> x = co_await s.put(six);
    co_await s.all_reduce(x, sum);
    std::vector<float> doubled = floats(6, 1);
    for (float& each : doubled) each *= 2;
    CHECK(co_await at(s, x, 1) == doubled);
    co_await s.all_reduce(x, avg);
    CHECK(co_await at(s, x, 0) == doubled);

    const tensor other = numbers(6, 50);
    co_await s.copy_to(x, 1, other);
    co_await s.broadcast(x, 1);
    CHECK(co_await at(s, x, 0) == floats(6, 50));

    const dref<tensor> half = co_await s.empty(shape(3), dtype::float32);
    co_await s.scatter(x, half);
    CHECK(co_await at(s, half, 0) == floats(3, 50));
    CHECK(co_await at(s, half, 1) == floats(3, 53));
    const dref<tensor> whole = co_await s.empty(shape(2, 3), dtype::float32);
    co_await s.all_gather(half, whole);
    CHECK(co_await at(s, whole, 1) == floats(6, 50));
    const dref<tensor> gathered = co_await s.empty(shape(6), dtype::float32);
    co_await s.gather(half, gathered, 1);
    CHECK(co_await at(s, gathered, 1) == floats(6, 50));
    CHECK(co_await at(s, gathered, 0) == std::vector<float>(6));
  });
}

TEST_CASE(
    "disco A17, A29, A32: groups have their own collectives, and workers exchange "
    "tensors") {
  in_each_kind(4, [](session& s) -> task<void> {
    const std::vector<mesh> halves = s.split(2);
    const tensor three = numbers(3, 1);
    const tensor five = numbers(5, 1);
    const dref<tensor> left = co_await halves[0].put(three);
    const dref<tensor> right = co_await halves[1].put(five);
    auto adding = [](const mesh& of, const dref<tensor>& x) -> task<void> {
      co_await of.all_reduce(x, sum);
    };
    co_await when_all(adding(halves[0], left), adding(halves[1], right));
    CHECK((co_await at(s, left, 1))[2] == 6);
    CHECK((co_await at(s, right, 3))[4] == 10);
    // A register of one mesh is nothing to another.
    const refusal elsewhere = co_await refusal_of(halves[1].all_reduce(left, sum));
    CHECK(elsewhere.cause == cause::invalid_argument);

    const tensor mine = numbers(3, 7);
    const dref<tensor> all = co_await s.put(mine);
    const dref<tensor> into = co_await s.empty(shape(3), dtype::float32);
    co_await s.transfer(all, 2, into, 0);
    CHECK(co_await at(s, into, 0) == floats(3, 7));
    CHECK(co_await at(s, into, 1) == std::vector<float>(3));
  });
}

TEST_CASE("disco A25: sizes that do not agree are an error on all workers, and no more") {
  in_each_kind(2, [](session& s) -> task<void> {
    const tensor seven = numbers(7, 1);
    const dref<tensor> x = co_await s.put(seven);
    const dref<tensor> half = co_await s.empty(shape(3), dtype::float32);
    const refusal told = co_await refusal_of(s.scatter(x, half));
    CHECK(told.cause != cause::none);
    co_await s.all_reduce(x, max);
    CHECK(co_await at(s, x, 1) == floats(7, 1));
  });
}

}  // namespace manyworlds::spmd_tests
