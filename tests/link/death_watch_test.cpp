// Death watch: what hostile futexes, waking and removal cost it, and what it asks of the
// kernel.
#include "link/death_watch.hpp"

#include <sys/syscall.h>

#include <random>

#include "death_fixture.hpp"

namespace manyworlds::link_tests {

TEST_SUITE_BEGIN("death watch");

namespace {

using ticket = shm::death_watch::ticket;

}  // namespace

TEST_CASE("a scribbled futex neither keeps the watcher busy nor hides another's death") {
  futex_page page;
  child_process other = holder_of(page, 1);
  child_process hostile([&](child_process::voice v) {
    std::minstd_rand random(1);
    v.say();
    for (unsigned i = 0;; ++i) {
      page.futex().store(static_cast<std::uint32_t>(random()) &
                         ~std::uint32_t{FUTEX_OWNER_DIED});
      if (i % 4 == 0) shm::wake_all(page.futex());
    }
  });
  REQUIRE(hostile.hear());
  watcher w;
  bool hostile_noticed = false;
  bool other_noticed = false;
  const auto begun = steady::now();
  const ticket a = w.deaths().add(page.futex(), [&] { hostile_noticed = true; });
  const ticket b = w.deaths().add(page.futex(1), [&] { other_noticed = true; });
  CHECK_FALSE(w.turn_until([&] { return hostile_noticed; }, 300ms));
  // Sixteen strikes, what we asked for ourselves, and then one look every 10 ms.
  CHECK(static_cast<double>(w.deaths().polls()) < 60 + milliseconds_since(begun) / 10);
  other.kill();
  CHECK(w.turn_until([&] { return other_noticed; }));
  CHECK_FALSE(hostile_noticed);
  // It may tell of its own death, and that is all.
  hostile.kill();
  hostile.reap();
  page.futex().store(FUTEX_OWNER_DIED);
  CHECK(w.turn_until([&] { return hostile_noticed; }));
  w.deaths().remove(a);
  w.deaths().remove(b);
}

TEST_CASE("waking the watcher without changing the futex does not keep it busy either") {
  futex_page page;
  child_process hostile([&](child_process::voice v) {
    v.say();
    for (;;) shm::wake_all(page.futex());
  });
  REQUIRE(hostile.hear());
  watcher w;
  bool noticed = false;
  const auto begun = steady::now();
  const ticket t = w.deaths().add(page.futex(), [&] { noticed = true; });
  CHECK_FALSE(w.turn_until([&] { return noticed; }, 300ms));
  CHECK(static_cast<double>(w.deaths().polls()) < 60 + milliseconds_since(begun) / 10);
  w.deaths().remove(t);
}

TEST_CASE("watching quiet peers costs no look at all") {
  futex_page page;
  child_process child = holder_of(page);
  watcher w;
  const ticket t = w.deaths().add(page.futex(), [] {});
  w.let_notices_come();
  const std::uint64_t before = w.deaths().polls();
  w.turn_until([] { return false; }, 200ms);
  CHECK(w.deaths().polls() <= before + 1);
  w.deaths().remove(t);
}

TEST_CASE("a removed futex is not touched: its memory may be given back") {
  watcher w;
  std::mt19937 random(7);
  int wanted_notices = 0;
  int notices = 0;
  for (int round = 0; round < 40; ++round) {
    auto page = std::make_unique<futex_page>();
    const child_process child = holder_of(*page, 0, 8);
    std::vector<ticket> tickets;
    bool removed = false;
    for (std::size_t i = 0; i < 8; ++i) {
      tickets.push_back(w.deaths().add(page->futex(i), [&] {
        // On the same thread as the removal: no race to lose.
        CHECK_FALSE(removed);
        ++notices;
      }));
    }
    // In some rounds the deaths are on their way when the futexes are removed.
    if (random() % 2 == 0) child.kill();
    if (random() % 2 == 0) {
      w.home().turn();
      ++wanted_notices;
    }
    for (const ticket t : tickets) w.deaths().remove(t);
    removed = true;
    page = nullptr;
    w.home().turn();
  }
  w.let_notices_come();
  CHECK(wanted_notices > 0);
}

TEST_CASE("what is called at a death may remove itself and others, and add") {
  futex_page page;
  const child_process child = holder_of(page, 0, 2);
  watcher w;
  int called = 0;
  bool late = false;
  ticket both[2]{};
  ticket added{};
  for (std::size_t i = 0; i < 2; ++i) {
    both[i] = w.deaths().add(page.futex(i), [&, i] {
      ++called;
      w.deaths().remove(both[i]);
      w.deaths().remove(both[1 - i]);
      added = w.deaths().add(page.futex(i), [&] { late = true; });
    });
  }
  child.kill();
  CHECK(w.turn_until([&] { return late; }));
  w.let_notices_come();
  CHECK(called == 1);
  w.deaths().remove(added);
}

TEST_CASE("a refused futex_waitv is said once, and costs no thread") {
  for (const int error : {ENOSYS, EPERM}) {
    child_process child([&](child_process::voice) {
      refuse(SYS_futex_waitv, error);
      futex_page page;
      watcher w;
      const ticket a = w.deaths().add(page.futex(0), [] {});
      const ticket b = w.deaths().add(page.futex(1), [] {});
      w.deaths().remove(a);
      const bool said_once =
          w.lines().size() == 1 && w.lines()[0].find("futex_waitv") != std::string::npos;
      ::_exit(a == ticket::none && b == ticket::none && said_once ? 0 : 2);
    });
    const int status = child.reap();
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::link_tests
