// Death watch: who has died holding a word is told, and nobody else.
#include "link/death_watch.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>

#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "death_fixture.hpp"
#include "link/process_watch.hpp"

namespace manyworlds::link_tests {

TEST_SUITE_BEGIN("death watch");

namespace {

using shm::death_watch;
using shm::robust_word;
using shm::robust_words;
using ticket = death_watch::ticket;

/// Of the machine, in bytes.
std::size_t available_memory() {
  std::ifstream info("/proc/meminfo");
  std::string name;
  std::size_t kilobytes = 0;
  while (info >> name) {
    if (name == "MemAvailable:" && info >> kilobytes) break;
  }
  return kilobytes << 10;
}

bool is_readable(int fd) {
  ::pollfd asked{fd, POLLIN, 0};
  return ::poll(&asked, 1, 0) == 1;
}

/// Page by page, so that tearing it down takes its time.
void touch_memory(std::size_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) ::_exit(2);
  ::madvise(at, bytes, MADV_NOHUGEPAGE);
  for (std::size_t i = 0; i < bytes; i += 4096) static_cast<volatile char*>(at)[i] = 1;
}

}  // namespace

TEST_CASE("a killed peer is noticed within 100 ms, before its memory is torn down") {
  const std::size_t gigabyte = std::size_t{1} << 30;
  const std::size_t available = available_memory();
  if (available < 2 * gigabyte) {
    MESSAGE("less than 2 GiB of memory are free: nothing to tear down");
    return;
  }
  const std::size_t bytes = available > 8 * gigabyte ? 4 * gigabyte : gigabyte;
  // On a busy machine whoever waits may be late in any one attempt.
  bool came_first = false;
  for (int attempt = 0; attempt < 3 && !came_first; ++attempt) {
    word_page page;
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    child_process child([&](child_process::voice v) {
      ::close(ends[0]);
      touch_memory(bytes);
      // As in a runtime: not the first thread holds it.
      std::thread([&] {
        robust_words words;
        robust_word word(words, page.at(0));
        if (!word.hold()) ::_exit(2);
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
    const ticket t = w.deaths().add(page.word(), [&] {
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

TEST_CASE("a killed peer is noticed whose forked child keeps its descriptors") {
  word_page page;
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  child_process child([&](child_process::voice v) {
    ::close(ends[0]);
    robust_words words;
    robust_word word(words, page.at(0));
    if (!word.hold()) ::_exit(2);
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
  const ticket t = w.deaths().add(page.word(), [&] { noticed = true; });
  child.kill();
  CHECK(w.turn_until([&] { return noticed; }));
  child.reap();
  // The socket says nothing: the forked child has it.
  CHECK_FALSE(is_readable(ends[0]));
  w.deaths().remove(t);
  ::close(ends[0]);
}

TEST_CASE("a word that tells of a death when it is added is noticed") {
  word_page page;
  child_process child = holder_of(page);
  child.kill();
  child.reap();
  watcher w;
  int notices = 0;
  const ticket t = w.deaths().add(page.word(), [&] { ++notices; });
  CHECK(w.turn_until([&] { return notices > 0; }));
  w.let_notices_come();
  CHECK(notices == 1);
  w.deaths().remove(t);
}

TEST_CASE("a word let go in order, and one never held, give no notice") {
  word_page page;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  child_process child([&](child_process::voice v) {
    char c;
    robust_words words;
    robust_word word(words, page.at(0));
    v.say();
    if (::read(ends[0], &c, 1) != 1 || !word.hold()) ::_exit(2);
    v.say();
    if (::read(ends[0], &c, 1) != 1) ::_exit(2);
    word.release();
  });
  REQUIRE(child.hear());
  watcher w;
  bool noticed = false;
  // Before it is held: the watcher's mark has to outlast the holding.
  const ticket t = w.deaths().add(page.word(), [&] { noticed = true; });
  const ticket never = w.deaths().add(page.word(1), [&] { noticed = true; });
  w.let_notices_come();
  REQUIRE(::write(ends[1], "!", 1) == 1);
  REQUIRE(child.hear());
  w.let_notices_come();
  CHECK((page.word().load() & FUTEX_WAITERS) != 0);
  REQUIRE(::write(ends[1], "!", 1) == 1);
  child.reap();
  w.let_notices_come();
  CHECK_FALSE(noticed);
  w.deaths().remove(t);
  w.deaths().remove(never);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("a word watched before it is held tells of its holder's death") {
  word_page page;
  watcher w;
  bool noticed = false;
  child_process child = [&] {
    const ticket early = w.deaths().add(page.word(), [&] { noticed = true; });
    REQUIRE(early != ticket::none);
    return holder_of(page);
  }();
  child.kill();
  CHECK(w.turn_until([&] { return noticed; }));
}

TEST_CASE("a stopped peer is not dead, and is once it is killed") {
  word_page page;
  child_process child = holder_of(page);
  watcher w;
  bool noticed = false;
  const ticket t = w.deaths().add(page.word(), [&] { noticed = true; });
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

TEST_CASE("of two hundred words those of the killed process are noticed, and no other") {
  word_page page;
  watcher w;
  constexpr std::size_t total = 200;
  std::vector<child_process> children;
  for (std::size_t first = 0; first < total; first += 10) {
    children.emplace_back([&page, first](child_process::voice v) {
      robust_words words;
      std::vector<std::unique_ptr<robust_word>> held;
      for (std::size_t i = first; i < first + 10; ++i) {
        held.push_back(std::make_unique<robust_word>(words, page.at(i)));
        if (!held.back()->hold()) ::_exit(2);
      }
      v.say();
      v.wait_for_ever();
    });
    REQUIRE(children.back().hear());
  }
  std::multiset<std::size_t> dead;
  std::vector<ticket> tickets;
  for (std::size_t i = 0; i < total; ++i) {
    tickets.push_back(w.deaths().add(page.word(i), [&dead, i] { dead.insert(i); }));
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

TEST_CASE("a scribbled word neither keeps the watcher busy nor hides another's death") {
  word_page page;
  child_process other = holder_of(page, 1);
  child_process hostile([&](child_process::voice v) {
    std::minstd_rand random(1);
    v.say();
    for (unsigned i = 0;; ++i) {
      page.word().store(static_cast<std::uint32_t>(random()) &
                        ~std::uint32_t{FUTEX_OWNER_DIED});
      if (i % 4 == 0) shm::wake_all(page.word());
    }
  });
  REQUIRE(hostile.hear());
  watcher w;
  bool hostile_noticed = false;
  bool other_noticed = false;
  const auto begun = steady::now();
  const ticket a = w.deaths().add(page.word(), [&] { hostile_noticed = true; });
  const ticket b = w.deaths().add(page.word(1), [&] { other_noticed = true; });
  CHECK_FALSE(w.turn_until([&] { return hostile_noticed; }, 300ms));
  // Sixteen strikes, what we asked for ourselves, and then one look every 10 ms.
  CHECK(static_cast<double>(w.deaths().looks()) < 60 + milliseconds_since(begun) / 10);
  other.kill();
  CHECK(w.turn_until([&] { return other_noticed; }));
  CHECK_FALSE(hostile_noticed);
  // It may tell of its own death, and that is all.
  hostile.kill();
  hostile.reap();
  page.word().store(FUTEX_OWNER_DIED);
  CHECK(w.turn_until([&] { return hostile_noticed; }));
  w.deaths().remove(a);
  w.deaths().remove(b);
}

TEST_CASE("waking the watcher without changing the word does not keep it busy either") {
  word_page page;
  child_process hostile([&](child_process::voice v) {
    v.say();
    for (;;) shm::wake_all(page.word());
  });
  REQUIRE(hostile.hear());
  watcher w;
  bool noticed = false;
  const auto begun = steady::now();
  const ticket t = w.deaths().add(page.word(), [&] { noticed = true; });
  CHECK_FALSE(w.turn_until([&] { return noticed; }, 300ms));
  CHECK(static_cast<double>(w.deaths().looks()) < 60 + milliseconds_since(begun) / 10);
  w.deaths().remove(t);
}

TEST_CASE("watching quiet peers costs no look at all") {
  word_page page;
  child_process child = holder_of(page);
  watcher w;
  const ticket t = w.deaths().add(page.word(), [] {});
  w.let_notices_come();
  const std::uint64_t before = w.deaths().looks();
  w.turn_until([] { return false; }, 200ms);
  CHECK(w.deaths().looks() <= before + 1);
  w.deaths().remove(t);
}

TEST_CASE("a removed word is not touched: its memory may be given back") {
  watcher w;
  std::mt19937 random(7);
  int wanted_notices = 0;
  int notices = 0;
  for (int round = 0; round < 40; ++round) {
    auto page = std::make_unique<word_page>();
    child_process child([&](child_process::voice v) {
      robust_words words;
      std::vector<std::unique_ptr<robust_word>> held;
      for (std::size_t i = 0; i < 8; ++i) {
        held.push_back(std::make_unique<robust_word>(words, page->at(i)));
        held.back()->hold();
      }
      v.say();
      v.wait_for_ever();
    });
    REQUIRE(child.hear());
    std::vector<ticket> tickets;
    bool removed = false;
    for (std::size_t i = 0; i < 8; ++i) {
      tickets.push_back(w.deaths().add(page->word(i), [&] {
        // On the same thread as the removal: no race to lose.
        CHECK_FALSE(removed);
        ++notices;
      }));
    }
    // In some rounds the deaths are on their way when the words are removed.
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
  word_page page;
  child_process child([&](child_process::voice v) {
    robust_words words;
    robust_word a(words, page.at(0)), b(words, page.at(1));
    a.hold();
    b.hold();
    v.say();
    v.wait_for_ever();
  });
  REQUIRE(child.hear());
  watcher w;
  int called = 0;
  bool late = false;
  ticket both[2]{};
  ticket added{};
  for (std::size_t i = 0; i < 2; ++i) {
    both[i] = w.deaths().add(page.word(i), [&, i] {
      ++called;
      w.deaths().remove(both[i]);
      w.deaths().remove(both[1 - i]);
      added = w.deaths().add(page.word(i), [&] { late = true; });
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
      word_page page;
      watcher w;
      const ticket a = w.deaths().add(page.word(0), [] {});
      const ticket b = w.deaths().add(page.word(1), [] {});
      w.deaths().remove(a);
      const bool said_once = w.remarks().size() == 1 &&
                             w.remarks()[0].find("futex_waitv") != std::string::npos;
      ::_exit(a == ticket::none && b == ticket::none && said_once ? 0 : 2);
    });
    const int status = child.reap();
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::link_tests
