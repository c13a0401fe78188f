// Deaths over shared memory that other notices see late or never: error in the waiter.
#include <poll.h>
#include <sys/syscall.h>

#include "process_fixture.hpp"
#include "support/burdens.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

namespace {

/// Of a process, without waiting.
class process_handle {
 public:
  explicit process_handle(pid_t pid)
      : fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {
    REQUIRE(fd_ >= 0);
  }
  process_handle(const process_handle&) = delete;
  process_handle& operator=(const process_handle&) = delete;
  ~process_handle() { ::close(fd_); }
  [[nodiscard]] bool has_ended(duration limit = duration::zero()) const {
    ::pollfd asked{fd_, POLLIN, 0};
    const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(limit);
    return ::poll(&asked, 1, static_cast<int>(wait.count())) == 1;
  }

 private:
  int fd_;
};

struct notice {
  failure error;
  bool before_its_end = false;
  duration after{0};
};

/// Kills a member with `megabytes` of memory while a receive waits for it.
notice kill_with(std::size_t megabytes) {
  site here(engine_kind::epoll);
  process victim = here.worker("heavy");
  leader us(here);
  world w = us.form("heavy");
  victim.order("touch " + std::to_string(megabytes));
  victim.expect("touched", 60s);
  const process_handle handle(victim.pid());
  auto waiting = us.rt.start(failure_of_receiving(w, 1));
  notice seen;
  const auto killed = clock::now();
  victim.send_kill();
  seen.error = us.finish(waiting);
  seen.after = clock::now() - killed;
  seen.before_its_end = !handle.has_ended();
  CHECK(handle.has_ended(20s));
  return seen;
}

}  // namespace

TEST_CASE("a killed peer is noticed before its gigabytes are torn down") {
  for (const std::size_t megabytes : {std::size_t{1024}, std::size_t{4096}}) {
    CAPTURE(megabytes);
    if (testing::available_memory() >> 20 < megabytes + 2048) {
      MESSAGE("skipped: " << megabytes << " MiB and two GiB to spare are not free here");
      continue;
    }
    // On a busy machine the waiting thread may be late in any one attempt.
    bool came_first = false;
    for (int attempt = 0; attempt < 3 && !came_first; ++attempt) {
      const notice n = kill_with(megabytes);
      CHECK(n.error.cause == cause::peer_died);
      CHECK(n.error.rank == 1);
      CHECK(n.after < 5s);
      came_first = n.before_its_end && n.error.detail == "its liveness futex";
      MESSAGE(megabytes << " MiB: "
                        << std::chrono::duration<double, std::milli>(n.after).count()
                        << " ms");
    }
    CHECK(came_first);
  }
}

TEST_CASE("a killed peer is noticed, and replaced, though its forked child lives on") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process other = here.worker("forked");
    leader us(here);
    world w = us.form("forked");
    other.order("echo forked 0 64");
    us.run(ping(w, 1, 10));
    other.order("fork");
    other.expect("forked");
    // The child has not taken the world's memory with it.
    us.run(ping(w, 1, 10));
    auto waiting = us.rt.start(failure_of_receiving(w, 1, 7));
    const auto killed = clock::now();
    other.send_kill();
    CHECK(us.finish(waiting).cause == cause::peer_died);
    CHECK(clock::now() - killed < 5s);
    // All of its descriptors are still open in the child.
    process next = here.worker("forked");
    next.order("echo forked 0 64");
    w = us.form("forked");
    us.run(ping(w, 1, 10));
    CHECK(next.end() == 0);
  }
}

TEST_CASE(
    "a peer killed at any moment of sending has sent whole messages, in order, and "
    "nothing else") {
  std::uint64_t seen = 0;
  for (std::size_t round = 0; round < 12; ++round) {
    CAPTURE(round);
    site here(engines()[round % engines().size()]);
    process sender = here.worker("cut");
    leader us(here);
    world w = us.form("cut");
    // In a cell, in a chunk, read from the sender's memory.
    const std::size_t bytes = std::array{16U, 4096U, 100'000U}[round % 3];
    received got;
    sender.order("stream cut 0 " + std::to_string(bytes) + " 1000000000");
    auto taking = us.rt.start(take_stream(w, 1, bytes, got, [] { return false; }));
    us.run(got.come(100 + 37 * round));
    sender.send_kill();
    us.finish(taking);
    CHECK(got.error.cause == cause::peer_died);
    CHECK(got.in_order);
    seen += got.messages;
  }
  CHECK(seen > 12 * 100);
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
