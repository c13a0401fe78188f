#include "observe/inquiry.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

using namespace manyworlds;
using namespace std::chrono_literals;

namespace {

struct turned_reactor {
  turned_reactor()
      : thread([this] { home.run_until([this] { return ending.load(); }); }) {}
  ~turned_reactor() {
    ending = true;
    home.wake();
    thread.join();
  }

  reactor home{make_engine(engine_kind::epoll).engine};
  std::atomic<bool> ending{false};
  std::thread thread;
};

/// Keeps a reactor's thread until it is told to go on.
struct blocking_work : work {
  blocking_work()
      : work([](work& w) noexcept {
          auto& self = static_cast<blocking_work&>(w);
          self.running = true;
          self.running.notify_all();
          self.held.wait(true);
        }) {}
  void let_go() {
    held = false;
    held.notify_all();
  }
  std::atomic<bool> running{false};
  std::atomic<bool> held{true};
};

}  // namespace

TEST_SUITE_BEGIN("inquiry");

TEST_CASE("an idle reactor answers, on its own thread") {
  turned_reactor r;
  const auto at = r.thread.get_id();
  inquiry<bool> on_thread(r.home, [at] { return std::this_thread::get_id() == at; });
  const auto answer = on_thread.ask(20s);
  REQUIRE(answer);
  CHECK(*answer);
  CHECK_FALSE(on_thread.unanswered_for());
}

TEST_CASE("a stuck reactor is asked once, however often, and gives no late answer") {
  std::atomic<int> looks{0};
  turned_reactor r;
  inquiry<int> number(r.home, [&] { return ++looks; });
  blocking_work block;
  r.home.post(block);
  block.running.wait(false);
  for (int i = 0; i < 50; ++i) CHECK_FALSE(number.ask(0ms));
  CHECK(number.unanswered_for().value() > 0ns);
  CHECK(looks == 0);
  block.let_go();
  // The earlier question may run first, and its answer is ours or is dropped.
  auto answer = number.ask(20s);
  REQUIRE(answer);
  CHECK(*answer == 1);
}

TEST_CASE("an answer that cannot be made stays unknown, and the next may be") {
  int looks = 0;
  turned_reactor r;
  inquiry<int> number(r.home, [&] {
    if (++looks == 1) throw std::bad_alloc();
    return looks;
  });
  CHECK_FALSE(number.ask(20s));
  const auto answer = number.ask(20s);
  REQUIRE(answer);
  CHECK(*answer == 2);
}

TEST_SUITE_END();
