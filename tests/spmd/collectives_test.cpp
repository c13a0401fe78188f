// What the workers of a mesh do together with tensors that stay on them (disco A16 to
// A29).
#include <algorithm>
#include <numeric>

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

namespace {

/// What two workers do together with tensors of their own sizes.
task<void> check_group(const mesh& group, std::int64_t each, float first) {
  const int lead = group.workers().front();
  const int last = group.workers().back();
  const tensor given = numbers(2 * each, first);
  const tensor other = numbers(2 * each, first + 1000);
  const dref<tensor> x = co_await group.put(given);
  co_await group.copy_to(x, last, other);
  co_await group.broadcast(x);
  CHECK(co_await at(group, x, last) == floats(2 * each, first));
  const dref<tensor> part = co_await group.empty(shape(each), dtype::float32);
  co_await group.scatter(x, part);
  CHECK(co_await at(group, part, lead) == floats(each, first));
  CHECK(co_await at(group, part, last) == floats(each, first + static_cast<float>(each)));
  const dref<tensor> whole = co_await group.empty(shape(2, each), dtype::float32);
  co_await group.all_gather(part, whole);
  CHECK(co_await at(group, whole, lead) == floats(2 * each, first));
  CHECK(co_await at(group, whole, last) == floats(2 * each, first));
  const dref<tensor> gathered = co_await group.empty(shape(2 * each), dtype::float32);
  co_await group.gather(part, gathered);
  CHECK(co_await at(group, gathered, lead) == floats(2 * each, first));
  CHECK(co_await at(group, gathered, last) ==
        std::vector<float>(static_cast<std::size_t>(2 * each)));
}

}  // namespace

TEST_CASE(
    "disco A19, A21, A23, A27: groups gather, broadcast and scatter their own shapes") {
  in_each_kind(4, [](session& s) -> task<void> {
    const std::vector<mesh> halves = s.split(2);
    co_await when_all(check_group(halves[0], 3, 1), check_group(halves[1], 5, 50));
  });
}

TEST_CASE(
    "disco A24, A28, A29: elements take another shape on their way to other workers, "
    "and behind the last group there is none") {
  in_each_kind(4, [](session& s) -> task<void> {
    const std::vector<mesh> halves = s.split(2);
    tensor cube({3, 4, 3}, dtype::float32);
    std::iota(cube.as<float>().begin(), cube.as<float>().end(), 1.0F);
    const dref<tensor> left = co_await halves[0].put(cube);
    const dref<tensor> half = co_await halves[0].empty(shape(3, 3, 2), dtype::float32);
    co_await halves[0].scatter(left, half);
    CHECK(co_await at(s, half, 0) == floats(18, 1));
    CHECK(co_await at(s, half, 1) == floats(18, 19));
    CHECK((co_await s.copy_from(half, 1)).shape() == shape(3, 3, 2));

    const dref<tensor> x = co_await s.put(cube);
    const tensor other = numbers(36, 101);
    co_await s.copy_to(x, 1, other);
    const dref<tensor> next = co_await s.empty(shape(36), dtype::float32);
    for (int k = 0; k < 2; ++k) co_await s.transfer(x, k, next, k + 2);
    CHECK(co_await at(s, next, 2) == floats(36, 1));
    CHECK(co_await at(s, next, 3) == floats(36, 101));
    for (const int to : {2, 4, 5}) {
      const refusal refused = co_await refusal_of(s.transfer(x, 2, next, to));
      CHECK(refused.cause == cause::invalid_argument);
    }
    co_await s.transfer(x, 3, next, 0);
    CHECK(co_await at(s, next, 0) == floats(36, 1));
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
