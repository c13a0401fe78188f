// What a broken world leaves unread in the memory of its link.
#include <future>
#include <thread>

#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

task<void> form_one(world& w) { co_await w; }

/// Sends that nobody reads: of more than a cell's size, and accepted at once.
task<void> send_unread(world& w, int messages) {
  const std::vector<std::uint64_t> message(512, 7);
  for (int i = 0; i < messages; ++i) co_await w.send(message, to(1));
}

/// Sends `messages` in each of so many worlds of two processes, and breaks them unread.
void break_unread(node& a, node& b, int worlds, int messages) {
  memory_store store;
  std::vector<world> as;
  std::vector<world> bs;
  for (int i = 0; i < worlds; ++i) {
    world_options options{.rank = 0, .size = 2, .form = 10s};
    options.name = "unread" + std::to_string(i);
    as.emplace_back(a.rt, store, options);
    options.rank = 1;
    bs.emplace_back(b.rt, store, options);
    auto first = a.rt.start(form_one(as.back()));
    auto second = b.rt.start(form_one(bs.back()));
    a.finish(first);
    b.finish(second);
  }
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
  for (world& w : as) a.run(send_unread(w, messages));
  as.clear();
  // The service thread is not blocked, and hears of it.
  const auto until = clock::now() + 10s;
  for (world& w : bs) {
    while (w.state() == world_state::up && clock::now() < until)
      std::this_thread::yield();
    CHECK(w.failure().cause == cause::abandoned);
  }
  may_go_on.set_value();
  b.finish(blocked);
}

}  // namespace

TEST_CASE("law 6: what nobody read when its world broke takes no room from the next") {
  node a;
  node b;
  // Ten rounds take more than the link has chunks.
  for (int round = 0; round < 10; ++round) {
    CAPTURE(round);
    break_unread(a, b, 1, 12);
  }
}

TEST_CASE("... nor from one in another place") {
  node a;
  node b;
  break_unread(a, b, 6, 10);
  break_unread(a, b, 1, 12);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
