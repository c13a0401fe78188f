// Processes to which system calls are refused, before they meet or in mid-traffic: every
// byte of what they send each other is the same.
#include <sys/syscall.h>
#include <sys/uio.h>

#include "../link/death_fixture.hpp"
#include "../world/world_fixture.hpp"
#include "member_rights.hpp"
#include "process_fixture.hpp"
#include "support/pattern.hpp"
#include "support/refused_calls.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

namespace {

using world_tests::kept_log;

constexpr std::size_t large = std::size_t{4} << 20;
constexpr uid_t nobody_uid = 65534;
constexpr const char* not_read = "may not be read";
constexpr const char* tcp_is_used = "tcp is used";

/// Patterned messages to a member that echoes them. How many came back as they were sent;
/// `under_way` is set after a few.
task<int> echo_patterns(world& w, int times, event& under_way) {
  int same = 0;
  std::vector<std::uint8_t> back(large);
  for (int n = 0; n < times; ++n) {
    const auto there = testing::pattern(large, static_cast<unsigned>(n));
    co_await w.send(there, to(1));
    co_await w.recv(back, from(1));
    same += back == there;
    if (n == 3) under_way.set();
  }
  co_return same;
}
int echo_patterns(leader& us, world& w, int times) {
  event under_way;
  return us.run(echo_patterns(w, times, under_way));
}

std::string echo_order(const std::string& name) {
  return "echo " + name + " 0 " + std::to_string(large);
}

void refuse_to(leader& us, long call) {
  auto there = [](long call) -> task<void> {
    testing::refuse(call, EPERM);
    co_return;
  };
  us.run(there(call));
}

bool may_read(pid_t other) {
  // The address is nowhere: a reader with the right to look gets EFAULT.
  char byte = 0;
  const iovec into{&byte, 1};
  const iovec from{nullptr, 1};
  ::process_vm_readv(other, &into, 1, &from, 1, 0);
  return errno == EFAULT;
}

}  // namespace

TEST_CASE("where reading is refused to one process or both, every byte is the same") {
  struct refusal {
    bool to_us;
    bool to_them;
  };
  for (const engine_kind e : engines()) {
    for (const refusal r :
         {refusal{true, false}, refusal{false, true}, refusal{true, true}}) {
      CAPTURE(name_of(e));
      CAPTURE(r.to_us);
      CAPTURE(r.to_them);
      testing::on_own_thread([&] {
        site here(e);
        std::vector<std::string> settings;
        if (r.to_them) settings.push_back("refuse=process_vm_readv");
        process other = here.worker("copied", settings);
        if (r.to_us) testing::refuse(SYS_process_vm_readv, EPERM);
        kept_log log;
        leader us(here, 200ms, &log);
        world w = us.form("copied");
        CHECK(us.rt.dump().find("over shm") != std::string::npos);
        other.order(echo_order("copied"));
        CHECK(echo_patterns(us, w, 4) == 4);
        if (r.to_us) CHECK(log.count(not_read, log_level::warning) == 1);
      });
    }
  }
}

TEST_CASE("where memfd_create is refused to one process, every byte is the same by tcp") {
  for (const bool to_us : {false, true}) {
    CAPTURE(to_us);
    testing::on_own_thread([&] {
      site here(engine_kind::epoll);
      // Only who dials makes memory: with both refused it is surely the one.
      process other = here.worker("unshared", {"refuse=memfd_create"});
      if (to_us) testing::refuse(SYS_memfd_create, EPERM);
      kept_log log;
      leader us(here, 200ms, &log);
      world w = us.form("unshared");
      other.order(echo_order("unshared"));
      CHECK(echo_patterns(us, w, 4) == 4);
      const bool over_tcp = us.rt.dump().find("over tcp") != std::string::npos;
      CHECK(log.count(tcp_is_used, log_level::warning) == (over_tcp ? 1 : 0));
      if (to_us) CHECK(over_tcp);
    });
  }
}

TEST_CASE("where io_uring is refused to one process, every byte is the same") {
  site here(engine_kind::automatic);
  process other = here.worker("polled", {"refuse=io_uring_setup"});
  leader us(here);
  world w = us.form("polled");
  other.order(echo_order("polled"));
  CHECK(echo_patterns(us, w, 4) == 4);
}

TEST_CASE("reading that is refused in mid-traffic loses nothing, on either side") {
  if (testing::reading_is_refused_here()) return;
  for (const engine_kind e : engines()) {
    for (const bool to_us : {true, false}) {
      CAPTURE(name_of(e));
      CAPTURE(to_us);
      site here(e);
      process other = here.worker("late");
      kept_log log;
      event under_way;
      leader us(here, 200ms, &log);
      world w = us.form("late");
      other.order(echo_order("late"));
      auto echoes = us.rt.start(echo_patterns(w, 12, under_way));
      us.run(until(under_way));
      if (to_us) {
        refuse_to(us, SYS_process_vm_readv);
      } else {
        other.order("refuse process_vm_readv");
        other.expect("refused");
      }
      CHECK(us.finish(std::move(echoes)) == 12);
      CHECK(log.count(not_read, log_level::warning) == (to_us ? 1 : 0));
      CHECK(w.state() == world_state::up);
    }
  }
}

TEST_CASE("a process that may no longer be traced is asked for what it sends") {
  if (::geteuid() != 0) {
    MESSAGE("refused here: becoming another user, whom rights bind; not tested");
    return;
  }
  site here(engine_kind::epoll);
  process other = here.worker("hidden", {"user=" + std::to_string(nobody_uid)});
  link_tests::child_process reader([&](link_tests::child_process::voice) {
    become(nobody_uid);
    {
      kept_log log;
      event under_way;
      leader us(here, 200ms, &log);
      world w = us.form("hidden");
      if (!may_read(other.pid())) ::_exit(77);
      other.order(echo_order("hidden"));
      auto echoes = us.rt.start(echo_patterns(w, 12, under_way));
      us.run(until(under_way));
      if (log.has(not_read)) ::_exit(3);
      other.order("hide");
      other.expect("hidden");
      if (us.finish(std::move(echoes)) != 12) ::_exit(4);
      if (may_read(other.pid())) ::_exit(5);
      if (log.count(not_read, log_level::warning) != 1) ::_exit(6);
      if (w.state() != world_state::up) ::_exit(7);
    }
    ::_exit(0);
  });
  const int status = reader.reap();
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    MESSAGE("refused here: reading a process of the same user; not tested");
  } else {
    CHECK(WEXITSTATUS(status) == 0);
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
