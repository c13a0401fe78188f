// Where process_vm_readv is refused, to one side or both: large messages are copied
// through what is shared, which is said once, and every byte is the same.
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>

#include "refusal_fixture.hpp"
#include "support/refused_here.hpp"

namespace manyworlds::link_tests {

TEST_SUITE_BEGIN("refusals");

namespace {

constexpr const char* not_read = "may not be read (process_vm_readv";

bool reads_its_peer(node& n) {
  return on_service(n, [](runtime_core& core) -> task<bool> {
    const auto links = core.peers().links();
    co_return links.size() == 1 && links[0]->local().is_readable();
  });
}

}  // namespace

TEST_CASE("where reading is refused to one side or both, every byte is the same") {
  struct refusal {
    bool to_a;
    bool to_b;
  };
  const bool always = testing::reading_is_refused_here();
  for (const refusal r :
       {refusal{true, false}, refusal{false, true}, refusal{true, true}}) {
    for (const int error : {EPERM, ENOSYS}) {
      CAPTURE(r.to_a);
      CAPTURE(r.to_b);
      CAPTURE(error);
      const call_filter refusing = refused(SYS_process_vm_readv, error);
      const auto a = node_where(r.to_a ? refusing : call_filter());
      const auto b = node_where(r.to_b ? refusing : call_filter());
      shared_world w(*a, *b, "copied");
      CHECK(reads_its_peer(*a) == !(r.to_a || always));
      CHECK(reads_its_peer(*b) == !(r.to_b || always));
      CHECK(carries_same_bytes(*a, *b, w));
      CHECK(a->log.count(not_read) == (r.to_a || always));
      CHECK(b->log.count(not_read) == (r.to_b || always));
      if (r.to_a) CHECK(a->log.has(std::strerror(error)));
    }
  }
}

TEST_CASE("that a peer may not be read is one warning, with the usual causes, for all") {
  const auto a = node_where(refused(SYS_process_vm_readv, EPERM));
  node b;
  node c;
  REQUIRE(pair_up(*a, b));
  REQUIRE(pair_up(c, *a));
  // It is said of each peer in turn, and is a warning once.
  CHECK(a->log.gets(not_read, 2));
  CHECK(a->log.count(not_read, log_level::warning) == 1);
  CHECK(a->log.count(not_read) == 2);
  for (const char* cause :
       {"readv: Operation not permitted", "a seccomp filter (profiles", "another user",
        "kernel.yama.ptrace_scope"})
    CHECK(a->log.count(cause, log_level::warning) == 1);
}

TEST_CASE("a dump says which side's memory may not be read") {
  const auto a = node_where(refused(SYS_process_vm_readv, EPERM));
  node b;
  shared_world w(*a, b, "dumped");
  CHECK(a->rt.dump().find("with shared memory (its own may not be read)") !=
        std::string::npos);
  CHECK(a->rt.dump().find("over shm") != std::string::npos);
}

TEST_CASE("reading that is refused in mid-traffic is one warning, and nothing is lost") {
  if (testing::reading_is_refused_here()) return;
  for (const int error : {EPERM, ENOSYS}) {
    CAPTURE(error);
    node a;
    node b;
    shared_world first(a, b, "first");
    shared_world second(a, b, "second");
    REQUIRE(reads_its_peer(b));
    CHECK(carries_same_bytes(a, b, first));
    refuse_to_reactor(b, SYS_process_vm_readv, error);
    CHECK(carries_same_bytes(a, b, first));
    CHECK(carries_same_bytes(a, b, second));
    CHECK(b.log.count(not_read) == 1);
    CHECK(b.log.count(not_read, log_level::warning) == 1);
    CHECK_FALSE(reads_its_peer(b));
    CHECK(reads_its_peer(a));
    // A world that is formed now asks from its start.
    shared_world third(a, b, "third");
    CHECK(carries_same_bytes(a, b, third));
    CHECK(b.log.count(not_read) == 1);
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::link_tests
