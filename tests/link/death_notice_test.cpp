// Death notice: the death of a process that held a futex is told, and no other end.
#include <sys/socket.h>
#include <sys/syscall.h>

#include <set>
#include <thread>

#include "death_fixture.hpp"
#include "support/burdens.hpp"

namespace manyworlds::link_tests {

TEST_SUITE_BEGIN("death notice");

namespace {

using shm::death_watch;
using shm::held_futex;
using shm::robust_futex_list;
using ticket = death_watch::ticket;

bool is_readable(int fd) {
  ::pollfd asked{fd, POLLIN, 0};
  return ::poll(&asked, 1, 0) == 1;
}

}  // namespace

TEST_CASE("a killed peer is noticed within 100 ms, before its memory is torn down") {
  // It takes 20 ms to tear down. A virtual machine touches a gigabyte in three to eight
  // seconds, if its host has to find the memory first: more of it, and the child was not
  // heard in time.
  const std::size_t bytes = std::size_t{1} << 30;
  if (testing::available_memory() < 2 * bytes) {
    MESSAGE("less than 2 GiB of memory are free: nothing to tear down");
    return;
  }
  // On a busy machine the waiting thread may be late in any one attempt.
  bool came_first = false;
  for (int attempt = 0; attempt < 3 && !came_first; ++attempt) {
    futex_page page;
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    child_process child([&](child_process::voice v) {
      ::close(ends[0]);
      if (!testing::touch_memory(bytes)) ::_exit(2);
      // As in a runtime: not the first thread holds it.
      std::thread([&] {
        robust_futex_list list;
        held_futex futex(list, page.at(0));
        if (!futex.hold()) ::_exit(2);
        v.say();
        v.wait_for_ever();
      }).join();
    });
    ::close(ends[1]);
    REQUIRE(child.hear());
    const auto handle = static_cast<int>(::syscall(SYS_pidfd_open, child.pid(), 0));
    REQUIRE(handle >= 0);

    watcher w;
    bool noticed = false;
    bool others_were_silent = false;
    double noticed_after = 0;
    const ticket t = w.deaths().add(page.futex(), [&] {
      noticed = true;
      others_were_silent = !is_readable(ends[0]) && !is_readable(handle);
    });
    REQUIRE(t != ticket::none);
    const auto killed = steady::now();
    child.kill();
    REQUIRE(w.turn_until([&] { return noticed; }));
    noticed_after = milliseconds_since(killed);
    came_first = others_were_silent && noticed_after < 100;
    // The others come too.
    ::pollfd both[] = {{ends[0], POLLIN, 0}, {handle, POLLIN, 0}};
    CHECK(::poll(&both[0], 1, 20'000) == 1);
    CHECK(::poll(&both[1], 1, 20'000) == 1);
    MESSAGE("noticed after ", noticed_after, " ms, gone after ",
            milliseconds_since(killed), " ms");
    w.deaths().remove(t);
    ::close(ends[0]);
    ::close(handle);
  }
  CHECK(came_first);
}

TEST_CASE("a killed peer is noticed though its forked child keeps its descriptors") {
  futex_page page;
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  child_process child([&](child_process::voice v) {
    ::close(ends[0]);
    robust_futex_list list;
    held_futex futex(list, page.at(0));
    if (!futex.hold()) ::_exit(2);
    if (::fork() == 0) {
      // Until the test lets go of its end.
      char c;
      ::_exit(::read(ends[1], &c, 1) == 0 ? 0 : 1);
    }
    v.say();
    v.wait_for_ever();
  });
  ::close(ends[1]);
  REQUIRE(child.hear());
  watcher w;
  bool noticed = false;
  const ticket t = w.deaths().add(page.futex(), [&] { noticed = true; });
  child.kill();
  CHECK(w.turn_until([&] { return noticed; }));
  child.reap();
  // The socket says nothing: the forked child has it.
  CHECK_FALSE(is_readable(ends[0]));
  w.deaths().remove(t);
  ::close(ends[0]);
}

TEST_CASE("a futex that tells of a death when it is added is noticed") {
  futex_page page;
  child_process child = holder_of(page);
  child.kill();
  child.reap();
  watcher w;
  int notices = 0;
  const ticket t = w.deaths().add(page.futex(), [&] { ++notices; });
  CHECK(w.turn_until([&] { return notices > 0; }));
  w.let_notices_come();
  CHECK(notices == 1);
  w.deaths().remove(t);
}

TEST_CASE("a futex let go in order, and one never held, give no notice") {
  futex_page page;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  child_process child([&](child_process::voice v) {
    char c;
    robust_futex_list list;
    held_futex futex(list, page.at(0));
    v.say();
    if (::read(ends[0], &c, 1) != 1 || !futex.hold()) ::_exit(2);
    v.say();
    if (::read(ends[0], &c, 1) != 1) ::_exit(2);
    futex.release();
  });
  REQUIRE(child.hear());
  watcher w;
  bool noticed = false;
  // Before it is held: the watcher's mark has to outlast the holding.
  const ticket t = w.deaths().add(page.futex(), [&] { noticed = true; });
  const ticket never = w.deaths().add(page.futex(1), [&] { noticed = true; });
  w.let_notices_come();
  REQUIRE(::write(ends[1], "!", 1) == 1);
  REQUIRE(child.hear());
  w.let_notices_come();
  CHECK((page.futex().load() & FUTEX_WAITERS) != 0);
  REQUIRE(::write(ends[1], "!", 1) == 1);
  child.reap();
  w.let_notices_come();
  CHECK_FALSE(noticed);
  w.deaths().remove(t);
  w.deaths().remove(never);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("a futex watched before it is held tells of its holder's death") {
  futex_page page;
  watcher w;
  bool noticed = false;
  child_process child = [&] {
    const ticket early = w.deaths().add(page.futex(), [&] { noticed = true; });
    REQUIRE(early != ticket::none);
    return holder_of(page);
  }();
  child.kill();
  CHECK(w.turn_until([&] { return noticed; }));
}

TEST_CASE("a stopped peer is not dead, and is once it is killed") {
  futex_page page;
  child_process child = holder_of(page);
  watcher w;
  bool noticed = false;
  const ticket t = w.deaths().add(page.futex(), [&] { noticed = true; });
  child.kill(SIGSTOP);
  int status = 0;
  REQUIRE(::waitpid(child.pid(), &status, WUNTRACED) == child.pid());
  REQUIRE(WIFSTOPPED(status));
  w.let_notices_come();
  CHECK_FALSE(noticed);
  child.kill(SIGKILL);
  CHECK(w.turn_until([&] { return noticed; }));
  w.deaths().remove(t);
}

TEST_CASE(
    "of two hundred futexes those of the killed process are noticed, and no other") {
  futex_page page;
  watcher w;
  constexpr std::size_t total = 200;
  std::vector<child_process> children;
  for (std::size_t first = 0; first < total; first += 10)
    children.push_back(holder_of(page, first, 10));
  std::multiset<std::size_t> dead;
  std::vector<ticket> tickets;
  for (std::size_t i = 0; i < total; ++i) {
    tickets.push_back(w.deaths().add(page.futex(i), [&dead, i] { dead.insert(i); }));
    REQUIRE(tickets.back() != ticket::none);
  }
  // 12 holds 120 to 129: on both sides of what one thread waits on.
  for (const std::size_t victim : {0u, 12u, 19u}) {
    CAPTURE(victim);
    dead.clear();
    children[victim].kill();
    CHECK(w.turn_until([&] { return dead.size() >= 10; }));
    w.let_notices_come();
    CHECK(dead.size() == 10);
    for (std::size_t i = victim * 10; i < victim * 10 + 10; ++i)
      CHECK(dead.count(i) == 1);
  }
  for (const ticket t : tickets) w.deaths().remove(t);
}

TEST_SUITE_END();

}  // namespace manyworlds::link_tests
