// Liveness futexes: held to the last moment, let go in order, and never left saying that
// a dead thread lives.
#include "link/liveness_futex.hpp"

#include <pthread.h>

#include <random>
#include <thread>

#include "death_fixture.hpp"

namespace manyworlds::link_tests {

TEST_SUITE_BEGIN("liveness futex");

namespace {

using shm::held_futex;
using shm::hold_step;
using shm::liveness_futex;
using shm::robust_futex_list;

bool says_dead(const liveness_futex& futex) {
  return (futex.load() & FUTEX_OWNER_DIED) != 0;
}
bool says_no_holder(const liveness_futex& futex) {
  return (futex.load() & ~std::uint32_t{FUTEX_WAITERS}) == 0;
}

constexpr hold_step hold_steps[] = {hold_step::announced, hold_step::written,
                                    hold_step::woken, hold_step::listed,
                                    hold_step::finished};
constexpr hold_step release_steps[] = {hold_step::announced, hold_step::listed,
                                       hold_step::written, hold_step::woken,
                                       hold_step::finished};

/// Ends the process as a kill from outside does, at one step.
struct killed_at {
  hold_step when;
  void operator()(hold_step now) const noexcept {
    if (now == when) ::kill(::getpid(), SIGKILL);
  }
};

}  // namespace

TEST_CASE("a thread that ends holding a futex is dead, whatever becomes of its process") {
  futex_page page;
  std::unique_ptr<robust_futex_list> list;
  std::unique_ptr<held_futex> futex;
  std::thread([&] {
    list = std::make_unique<robust_futex_list>();
    futex = std::make_unique<held_futex>(*list, page.at(3));
    CHECK(futex->hold());
    CHECK(page.futex(3).load() == static_cast<std::uint32_t>(::gettid()));
    CHECK(list->size() == 1);
  }).join();
  // A joined thread has let go of its memory, which the kernel does after this.
  CHECK(says_dead(page.futex(3)));
  futex = nullptr;
  CHECK(says_dead(page.futex(3)));
}

TEST_CASE("of futexes let go in any order only those still held are found at the end") {
  futex_page page;
  child_process child([&](child_process::voice v) {
    robust_futex_list list;
    held_futex a(list, page.at(0)), b(list, page.at(1)), c(list, page.at(2)),
        d(list, page.at(3));
    for (held_futex* w : {&a, &b, &c, &d}) {
      if (!w->hold()) ::_exit(2);
    }
    b.release();
    d.release();
    a.release();
    if (!b.hold() || list.size() != 2) ::_exit(2);
    v.say();
    v.wait_for_ever();
  });
  REQUIRE(child.hear());
  child.kill();
  child.reap();
  CHECK(page.futex(0).load() == 0);
  CHECK(says_dead(page.futex(1)));
  CHECK(says_dead(page.futex(2)));
  CHECK(page.futex(3).load() == 0);
}

TEST_CASE(
    "killed between any two steps, a futex that was written and not cleared is dead") {
  for (const bool watched : {false, true}) {
    CAPTURE(watched);
    for (const hold_step when : hold_steps) {
      CAPTURE(static_cast<int>(when));
      futex_page page;
      if (watched) page.futex().store(FUTEX_WAITERS);
      child_process child([&](child_process::voice) {
        robust_futex_list list;
        held_futex futex(list, page.at(0));
        futex.hold(killed_at{when});
      });
      CHECK(WIFSIGNALED(child.reap()));
      const bool was_promised = when != hold_step::announced;
      CHECK(says_dead(page.futex()) == was_promised);
      CHECK(says_no_holder(page.futex()) == !was_promised);
      // Killed before the holder woke the watcher, the kernel must know of it.
      if (watched && when == hold_step::written)
        CHECK((page.futex().load() & FUTEX_WAITERS) != 0);
    }
    for (const hold_step when : release_steps) {
      CAPTURE(static_cast<int>(when));
      futex_page page;
      if (watched) page.futex().store(FUTEX_WAITERS);
      child_process child([&](child_process::voice) {
        robust_futex_list list;
        held_futex futex(list, page.at(0));
        if (!futex.hold()) ::_exit(2);
        futex.release(killed_at{when});
      });
      CHECK(WIFSIGNALED(child.reap()));
      const bool still_held = when == hold_step::announced || when == hold_step::listed;
      CHECK(says_dead(page.futex()) == still_held);
      CHECK(says_no_holder(page.futex()) == !still_held);
    }
  }
}

TEST_CASE("killed at any moment, a futex never says that the dead thread holds it") {
  std::mt19937 random(20261121);
  std::uniform_int_distribution<int> moment(0, 300);
  int deaths = 0;
  int goodbyes = 0;
  for (int i = 0; i < 60; ++i) {
    futex_page page;
    child_process child([&](child_process::voice v) {
      robust_futex_list list;
      held_futex first(list, page.at(0));
      held_futex second(list, page.at(1));
      v.say();
      for (;;) {
        first.hold();
        second.hold();
        first.release();
        second.release();
      }
    });
    REQUIRE(child.hear());
    const auto until = steady::now() + std::chrono::microseconds(moment(random));
    // Where it shares our CPU it runs only meanwhile.
    while (steady::now() < until) std::this_thread::yield();
    child.kill();
    child.reap();
    for (const std::size_t at : {0u, 1u}) {
      CHECK((says_dead(page.futex(at)) || says_no_holder(page.futex(at))));
      ++(says_dead(page.futex(at)) ? deaths : goodbyes);
    }
  }
  CHECK(deaths > 0);
  CHECK(goodbyes > 0);
}

TEST_CASE("no more futexes are held than the kernel reads at the end of a thread") {
  futex_page page;
  std::thread([&] {
    robust_futex_list list;
    std::vector<std::unique_ptr<futex_page>> pages;
    std::vector<std::unique_ptr<held_futex>> held;
    for (std::size_t i = 0; i < robust_futex_list::most; ++i) {
      if (i % futex_page::futexes == 0) pages.push_back(std::make_unique<futex_page>());
      held.push_back(
          std::make_unique<held_futex>(list, pages.back()->at(i % futex_page::futexes)));
      REQUIRE(held.back()->hold());
    }
    held_futex one_more(list, page.at(0));
    CHECK_FALSE(one_more.hold());
    CHECK(page.futex().load() == 0);
    held.pop_back();
    CHECK(one_more.hold());
    one_more.release();
    held.clear();
  }).join();
}

TEST_CASE(
    "glibc's own list is back when ours is gone: a robust mutex tells of its owner") {
  pthread_mutexattr_t robust;
  ::pthread_mutexattr_init(&robust);
  ::pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_t mutex;
  ::pthread_mutex_init(&mutex, &robust);
  std::thread([&] {
    { robust_futex_list list; }
    ::pthread_mutex_lock(&mutex);
  }).join();
  CHECK(::pthread_mutex_lock(&mutex) == EOWNERDEAD);
  ::pthread_mutex_consistent(&mutex);
  ::pthread_mutex_unlock(&mutex);
  ::pthread_mutex_destroy(&mutex);
  ::pthread_mutexattr_destroy(&robust);
}

TEST_CASE(
    "a forked child neither lets go of its parent's futexes nor takes them with it") {
  futex_page page;
  std::thread([&] {
    robust_futex_list list;
    held_futex futex(list, page.at(0));
    REQUIRE(futex.hold());
    const std::uint32_t held = page.futex().load();
    child_process child([&](child_process::voice) {
      futex.release();
      ::_exit(list.is_mine() ? 2 : 0);
    });
    const int status = child.reap();
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(page.futex().load() == held);
  }).join();
  CHECK(page.futex().load() == 0);
}

TEST_SUITE_END();

}  // namespace manyworlds::link_tests
