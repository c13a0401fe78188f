// The ring and its wake-ups on the hardware: between two threads, and between processes
// one of which is killed.
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <new>
#include <random>
#include <thread>

#include "link/shared_ring_fixture.hpp"

TEST_SUITE_BEGIN("link/shared memory");

using namespace manyworlds::shm;
using namespace manyworlds::detail::shm::testing;
using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

TEST_CASE("two threads: no cell is lost or torn, no wake-up is missed, for a second") {
  both_ends both;
  std::atomic<bool> stop{false};
  std::atomic<std::uint32_t> woken{0};
  const auto begun = clock_type::now();
  const auto wake = [&] {
    woken.fetch_add(1);
    woken.notify_one();
  };
  std::atomic<std::uint32_t> last{0};
  std::atomic<std::uint32_t> read{0};
  bool missed = false;

  std::thread writing([&] {
    std::mt19937 random{7};
    std::uint32_t until_look = 0;
    for (;;) {
      if (until_look-- == 0) {
        if (clock_type::now() - begun > 1s) break;
        until_look = 100;
      }
      const auto batch = static_cast<std::uint32_t>(1 + random() % 4);
      if (both.writer.reserve(batch) != room::enough) {
        std::this_thread::yield();
        continue;
      }
      both.write(batch);
      if (both.sender.notify(9u)) wake();
      // A wait for the answer meets a missed wake-up; the next batch would mend it.
      for (int look = 0; read != both.writer.position() && !missed; ++look) {
        if (look > 1000) std::this_thread::yield();
        missed = clock_type::now() - begun > 10s;
      }
      if (missed) break;
      for (auto wait = random() % 300; wait != 0; --wait)
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    last = both.writer.position();
    stop = true;
    wake();
  });

  bool torn = false;
  bool polled = false;
  std::mt19937 random{8};
  std::uint32_t looks = 0, patience = 0;
  std::uint32_t slept = 0;
  const auto ready = [&] { return polled && both.reader.ready(); };
  while (!stop || both.reader.position() != last) {
    const auto before = woken.load();
    bool idle = true;
    if (both.receiver.take().contains(9) || polled)
      for (; both.reader.ready(); idle = false) {
        torn |= !whole(both.reader.front(), both.reader.position());
        (void)both.reader.pop();
        read = both.reader.position();
      }
    if (idle ? ++looks < patience : (looks = 0) == 0) continue;
    patience = random() % 64;
    if (polled) {
      polled = !both.receiver.park(9, ready);
    } else if (both.reader.position() % 2 == 0) {
      both.receiver.start_polling(9);
      polled = true;
    }
    if (stop || !both.receiver.prepare_sleep(ready)) continue;
    woken.wait(before);
    ++slept;
    both.receiver.cancel_sleep();
  }
  writing.join();
  CHECK_FALSE(torn);
  CHECK_FALSE(missed);
  CHECK(both.reader.position() == last);
  CHECK(slept != 0);
  CHECK(last > 100);
}

TEST_CASE("a process killed while it writes leaves whole cells only") {
  std::mt19937 random{11};
  const auto begun = clock_type::now();
  for (int round = 0; round < 5 || (round < 200 && clock_type::now() - begun < 1s);
       ++round) {
    const int memory = ::memfd_create("ring", MFD_CLOEXEC);
    REQUIRE(memory >= 0);
    REQUIRE(::ftruncate(memory, sizeof(direction)) == 0);
    void* at =
        ::mmap(nullptr, sizeof(direction), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    ::close(memory);
    REQUIRE(at != MAP_FAILED);
    auto& shared = *new (at) direction;
    const auto batch = static_cast<std::uint32_t>(1 + random() % 5);

    const auto child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ring_writer writer{shared.ring};
      for (;;) {
        if (writer.reserve(batch) != room::enough) {
          ::sched_yield();
          continue;
        }
        for (std::uint32_t cell = 0; cell != batch; ++cell)
          writer.fill(cell, content_of(writer.position() + cell));
        writer.publish(batch);
      }
    }
    REQUIRE(child > 0);

    ring_reader reader{shared.ring};
    bool torn = false;
    const auto read_all = [&] {
      for (; reader.ready(); (void)reader.pop())
        torn |= !whole(reader.front(), reader.position());
    };
    const auto kill_after = 200 + random() % 3000;
    const auto give_up = clock_type::now() + 5s;
    while (reader.position() < kill_after && clock_type::now() < give_up) {
      read_all();
      ::sched_yield();
    }
    ::kill(child, SIGKILL);
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child);
    read_all();
    CHECK_FALSE(torn);
    CHECK_MESSAGE(reader.position() % batch == 0, "half a batch was shown");
    CHECK(reader.position() >= kill_after);
    ::munmap(at, sizeof(direction));
  }
}

TEST_SUITE_END();
