// The first await of a world: what is refused before anything starts, and what a runtime
// that ends at that moment waits for.
#include <future>

#include "manyworlds/store/prefix_store.hpp"
#include "support/eventually.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

namespace {

world_options member(rank_t rank, rank_t size = 2) {
  return {.name = "beginning", .rank = rank, .size = size, .form = 30s};
}

void check_refused(const failure& f, std::initializer_list<const char*> names) {
  CAPTURE(f.text());
  CHECK(f.cause == cause::invalid_argument);
  CHECK(f.operation == operation_kind::form);
  for (const char* name : names) CHECK(f.detail.find(name) != std::string::npos);
}

}  // namespace

TEST_SUITE_BEGIN("world");

TEST_CASE("two ranks of one world in one runtime: the second is refused, naming both") {
  memory_store store;
  node a;
  node b;
  world w0(a.rt, store, member(0));
  world w1(a.rt, store, member(1));
  auto first = a.rt.start(forming(w0));
  REQUIRE(testing::eventually([&] { return w0.state() != world_state::described; }));
  check_refused(a.run(forming(w1)), {"rank 0", "rank 1"});
  // The first is as well as ever.
  world right(b.rt, store, member(1));
  CHECK(!b.run(forming(right)));
  CHECK(!a.finish(first));
  check_alive(a, w0, b, right);
}

TEST_CASE("two live handles of one member: the second is refused, forming or up") {
  memory_store store;
  node a;
  node b;
  world w0(a.rt, store, member(0));
  world forming_too(a.rt, store, member(0));
  auto first = a.rt.start(forming(w0));
  REQUIRE(testing::eventually([&] { return w0.state() != world_state::described; }));
  check_refused(a.run(forming(forming_too)), {"rank 0"});
  world w1(b.rt, store, member(1));
  CHECK(!b.run(forming(w1)));
  CHECK(!a.finish(first));
  world up_too(a.rt, store, member(0));
  check_refused(a.run(forming(up_too)), {"rank 0"});
  check_alive(a, w0, b, w1);
  // Over, it is no longer a live handle.
  w0 = world();
  CHECK(b.run(w1.broken()).cause == cause::abandoned);
  w1 = world(b.rt, store, member(1));
  w0 = world(a.rt, store, member(0));
  auto second = b.rt.start(forming(w1));
  CHECK(!a.run(forming(w0)));
  CHECK(!b.finish(second));
}

TEST_CASE("two ranks of one runtime that come by two clients of a store are both told") {
  memory_store store;
  prefix_store one("job", store);
  prefix_store other("job", store);
  node a;
  world w0(a.rt, one, member(0));
  world w1(a.rt, other, member(1));
  auto first = a.rt.start(forming(w0));
  auto second = a.rt.start(forming(w1));
  check_refused(a.finish(first), {"rank 0", "rank 1"});
  check_refused(a.finish(second), {"rank 0", "rank 1"});
}

TEST_CASE("... and so are two of another runtime than rank 0's") {
  memory_store store;
  prefix_store one("job", store);
  prefix_store other("job", store);
  node a;
  node b;
  world w0(a.rt, one, member(0, 3));
  world w1(b.rt, one, member(1, 3));
  world w2(b.rt, other, member(2, 3));
  auto first = a.rt.start(forming(w0));
  auto second = b.rt.start(forming(w1));
  auto third = b.rt.start(forming(w2));
  check_refused(a.finish(first), {"rank 1", "rank 2"});
  check_refused(b.finish(second), {"rank 1", "rank 2"});
  check_refused(b.finish(third), {"rank 1", "rank 2"});
}

TEST_CASE("one name in two stores is two worlds, also for one runtime") {
  memory_store store;
  prefix_store left("left", store);
  prefix_store right("right", store);
  node a;
  node b;
  world l0(a.rt, left, member(0));
  world l1(b.rt, left, member(1));
  world r1(a.rt, right, member(1));
  world r0(b.rt, right, member(0));
  auto first = a.rt.start(forming(l0));
  auto second = a.rt.start(forming(r1));
  auto third = b.rt.start(forming(l1));
  CHECK(!b.run(forming(r0)));
  CHECK(!a.finish(first));
  CHECK(!a.finish(second));
  CHECK(!b.finish(third));
}

TEST_CASE("a runtime that ends waits for a world that has just been asked to form") {
  memory_store store;
  auto rt = std::make_unique<runtime>(runtime_options{.log_from = log_level::silent});
  std::promise<void> is_held;
  std::promise<void> may_go_on;
  auto hold = [&]() -> task<void> {
    is_held.set_value();
    may_go_on.get_future().wait();
    co_return;
  };
  // The service thread is busy: it cannot have begun the forming when the runtime ends.
  auto held = rt->start_service(hold());
  is_held.get_future().wait();
  world w(*rt, store, member(0));
  access::core(w).begin_forming();
  CHECK(access::core(*rt).worlds().snapshot().size() == 1);
  const std::weak_ptr<world_core> core = access::core_ptr(w);
  auto ended = std::async(std::launch::async, [&] { rt = nullptr; });
  CHECK(testing::eventually([&] { return w.state() == world_state::broken; }));
  CHECK(ended.wait_for(0s) == std::future_status::timeout);
  may_go_on.set_value();
  ended.get();
  CHECK(w.failure().cause == cause::runtime_stopped);
  CHECK(access::core(w).drained().is_set());
  w = world();
  CHECK(core.expired());
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
