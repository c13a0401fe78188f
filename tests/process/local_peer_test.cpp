// Processes of one host: memory that they share, and how they hear of each other's death.
#include <sys/syscall.h>

#include "../link/death_fixture.hpp"
#include "link/local_peer.hpp"
#include "manyworlds/store/run_on.hpp"
#include "process_fixture.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

namespace {

/// Whether the one link of ours is local, once that is known.
bool has_local_link(leader& us) {
  auto look = [](runtime_core& core) -> task<bool> {
    const auto links = core.peers().links();
    if (links.size() != 1) co_return false;
    co_return co_await links[0]->local().paired(core.service().now() + 10s);
  };
  auto there = [&look](runtime& rt) -> task<bool> {
    co_return co_await run_on(rt.service(), look(access::core(rt)));
  };
  return us.run(there(us.rt));
}

/// Of a member that is killed while a child of it holds its descriptors: its connections
/// do not end.
failure death_of(process& member, leader& us, const std::string& name) {
  world w = us.form(name);
  CHECK(has_local_link(us));
  member.order("fork");
  member.expect("forked");
  member.send_kill();
  return us.broken(w);
}

}  // namespace

TEST_CASE("two processes of one host share memory, and a dump says so") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    site here(e);
    process other = here.worker("near");
    leader us(here);
    world w = us.form("near");
    CHECK(has_local_link(us));
    CHECK(us.rt.dump().find("with shared memory") != std::string::npos);
    other.order("echo near 0 64");
    us.run(ping(w, 1, 100));
  }
}

TEST_CASE("a process that has shared memory turned off is spoken to over tcp") {
  site here(engine_kind::epoll);
  process other = here.worker("far", {"shm=off"});
  leader us(here);
  world w = us.form("far");
  CHECK_FALSE(has_local_link(us));
  CHECK(us.rt.dump().find("with shared memory") == std::string::npos);
  other.order("echo far 0 64");
  us.run(ping(w, 1, 100));
}

TEST_CASE(
    "a killed process is noticed by its liveness futex, though a child holds its "
    "connections") {
  site here(engine_kind::epoll);
  int by_futex = 0;
  // Where this machine is busy, a process handle may be looked at first.
  for (int round = 0; round < 20 && by_futex == 0; ++round) {
    const std::string name = "killed" + std::to_string(round);
    process other = here.worker(name);
    leader us(here);
    const failure f = death_of(other, us, name);
    CHECK(f.cause == cause::peer_died);
    CHECK(f.rank == 1);
    by_futex += f.detail == "its liveness futex" ? 1 : 0;
  }
  CHECK(by_futex > 0);
}

TEST_CASE(
    "where liveness futexes cannot be watched, a killed process is noticed by its "
    "handle") {
  site here(engine_kind::epoll);
  process other = here.worker("handled");
  link_tests::child_process observer([&](link_tests::child_process::voice) {
    link_tests::refuse(SYS_futex_waitv, ENOSYS);
    leader us(here);
    const failure f = death_of(other, us, "handled");
    const bool by_handle =
        f.cause == cause::peer_died && f.detail == "its process handle";
    ::_exit(by_handle ? 0 : 2);
  });
  const int status = observer.reap();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a process that ends in order is no death, nor that of its worlds") {
  site here(engine_kind::epoll);
  process other = here.worker("orderly");
  leader us(here);
  world w = us.form("orderly");
  CHECK(has_local_link(us));
  other.order("leave orderly");
  other.expect("left orderly");
  CHECK(us.broken(w).cause == cause::closed);
  CHECK(other.end() == 0);
  CHECK(w.failure().cause == cause::closed);
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
