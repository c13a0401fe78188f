// What a broken world leaves unread in the memory of its link.
#include <future>

#include "support/eventually.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

/// More than a receiver reads in one turn.
constexpr int messages = 60;

task<void> form_one(world& w) { co_await w; }

/// Sends that are never read: of more than a cell's size, and accepted at once.
task<void> send_unread(world& w) {
  const std::vector<std::uint64_t> message(512, 7);
  constexpr int in_a_window = 15;
  for (int i = 0; i < messages; ++i) {
    co_await w.send(message, to(1), lane(static_cast<std::uint64_t>(i / in_a_window)));
  }
}

}  // namespace

TEST_CASE("law 6: what was unread when its world broke takes no room from the next") {
  memory_store store;
  node a;
  node b;
  // Two rounds leave more than the link has room for.
  for (int round = 0; round < 6; ++round) {
    CAPTURE(round);
    world_options options{.name = "unread", .rank = 0, .size = 2, .form = 10s};
    world wa(a.rt, store, options);
    options.rank = 1;
    world wb(b.rt, store, options);
    auto first = a.rt.start(form_one(wa));
    auto second = b.rt.start(form_one(wb));
    a.finish(first);
    b.finish(second);
    std::promise<void> may_go_on;
    std::promise<void> is_blocked;
    // Nothing is read while its thread is ours.
    auto block = [&]() -> task<void> {
      is_blocked.set_value();
      may_go_on.get_future().wait();
      co_return;
    };
    auto blocked = b.rt.start(block());
    is_blocked.get_future().wait();
    a.run(send_unread(wa));
    wa = world();
    // The service thread is not blocked, and hears of it.
    CHECK(testing::eventually([&] { return wb.state() != world_state::up; }));
    CHECK(wb.failure().cause == cause::abandoned);
    may_go_on.set_value();
    b.finish(blocked);
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
