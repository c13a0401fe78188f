// Where sealed memory is refused, or runs out: tcp, which is said once, or less of it;
// and every byte is the same.
#include <fcntl.h>
#include <linux/memfd.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "death_fixture.hpp"
#include "refusal_fixture.hpp"

#if !defined(MFD_NOEXEC_SEAL)
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace manyworlds::link_tests {

TEST_SUITE_BEGIN("refusals");

namespace {

constexpr const char* no_memory_shared = "no memory is shared with";

std::string transport_of(node& n, const world& w) {
  auto ask = [](const world& w) -> task<std::string> { co_return w.transport(); };
  return n.run(ask(w));
}

/// Worlds of such a pair use tcp, and both say why, once: also with a third.
void check_tcp_and_said_once(const call_filter& calls, const char* reason) {
  CAPTURE(reason);
  const auto a = node_where(calls);
  node b;
  node c;
  // Who dials brings the memory.
  CHECK_FALSE(pair_up(*a, b));
  CHECK_FALSE(pair_up(*a, c));
  shared_world w(*a, b, "tcp");
  CHECK(transport_of(*a, w.of_a) == "tcp");
  CHECK(carries_same_bytes(*a, b, w));
  CHECK(a->log.count(no_memory_shared, log_level::warning) == 1);
  CHECK(a->log.count(no_memory_shared) == 2);
  CHECK(a->log.count(reason, log_level::warning) == 1);
  CHECK(b.log.gets(no_memory_shared));
  CHECK(b.log.count(no_memory_shared, log_level::warning) == 1);
  CHECK(b.log.count(reason, log_level::warning) == 1);
}

/// The exit status of a forked child that runs `body`, or -signal.
template <class Body>
int in_child(Body body) {
  child_process child([&](child_process::voice) { ::_exit(body()); });
  const int status = child.reap();
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

constexpr int not_possible_here = 77;

task<void> enter_barriers(world& w) {
  // The fourth collective passes the pages.
  for (int i = 0; i < 8; ++i) co_await w.barrier();
}

bool write_number(const char* path, const char* number) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = ::write(fd, number, std::strlen(number)) > 0;
  ::close(fd);
  return written;
}

/// In a pid namespace of its own, where only memory that is sealed against execution is
/// given out.
int share_memory_where_it_is_never_executable() {
  if (::unshare(CLONE_NEWPID) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
    return not_possible_here;
  return in_child([] {
    // The first process of a namespace ignores its own alarm.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!write_number("/proc/sys/vm/memfd_noexec", "2")) return not_possible_here;
    // It is in force.
    if (::memfd_create("executable", MFD_CLOEXEC | 0x0010U) >= 0 || errno != EACCES)
      return not_possible_here;
    node a;
    node b;
    if (!pair_up(a, b) || a.log.has(no_memory_shared)) return 2;
    shared_world w(a, b, "unexecutable");
    if (transport_of(a, w.of_a) != "shm") return 3;
    return carries_same_bytes(a, b, w) ? 0 : 4;
  });
}

}  // namespace

TEST_CASE("where memfd_create is refused there is tcp, said once, and the same bytes") {
  check_tcp_and_said_once(
      refused(SYS_memfd_create, EPERM),
      "memfd_create: Operation not permitted; usual causes: a seccomp");
  check_tcp_and_said_once(
      refused(SYS_memfd_create, ENOSYS),
      "memfd_create: Function not implemented; usual causes: a seccomp");
  check_tcp_and_said_once(refused(SYS_memfd_create, EACCES), "sysctl vm.memfd_noexec");
}

TEST_CASE("where no memory can be sealed there is tcp, said once") {
  call_filter no_seals;
  no_seals.refuse_with_value(SYS_fcntl, 1, F_ADD_SEALS, EINVAL);
  check_tcp_and_said_once(no_seals, "sealing shared memory: Invalid argument");
}

TEST_CASE("a kernel that does not know MFD_NOEXEC_SEAL shares memory all the same") {
  call_filter old_kernel;
  old_kernel.refuse_with_bits(SYS_memfd_create, 1, MFD_NOEXEC_SEAL, EINVAL);
  const auto a = node_where(old_kernel);
  const auto b = node_where(old_kernel);
  CHECK(pair_up(*a, *b));
  CHECK_FALSE(a->log.has(no_memory_shared));
  shared_world w(*a, *b, "old");
  CHECK(transport_of(*a, w.of_a) == "shm");
  CHECK(carries_same_bytes(*a, *b, w));
}

TEST_CASE("with sysctl vm.memfd_noexec=2 memory is shared all the same") {
  const int result = in_child(share_memory_where_it_is_never_executable);
  if (result == not_possible_here) {
    MESSAGE("refused here: a pid namespace with vm.memfd_noexec=2; not tested");
  } else {
    CHECK(result == 0);
  }
}

TEST_CASE("where no page can be sealed worlds do without, and the first says so") {
  // F_SEAL_FUTURE_WRITE is of Linux 5.1; the other seals are older.
  call_filter old_kernel;
  old_kernel.refuse_with_bits(SYS_fcntl, 2, F_SEAL_FUTURE_WRITE, EINVAL);
  constexpr const char* without = "small collectives of this world go by messages";
  node a;
  node b;
  refuse_to_reactor(a, old_kernel);
  for (const char* name : {"first", "second", "third"}) {
    shared_world w(a, b, name);
    REQUIRE(transport_of(a, w.of_a) == "shm");
    auto other = b.rt.start(enter_barriers(w.of_b));
    a.run(enter_barriers(w.of_a));
    b.finish(std::move(other));
  }
  CHECK(a.log.count(without, log_level::warning) == 1);
  CHECK(a.log.count(without) == 3);
  CHECK(a.log.has("sealing a page: Invalid argument"));
  CHECK_FALSE(b.log.has(without));
}

TEST_CASE("law 11: a peer that brings memory without seals is spoken to over tcp") {
  // To its maker it looks sealed.
  call_filter pretending;
  pretending.refuse_with_value(SYS_fcntl, 1, F_ADD_SEALS, 0);
  const auto a = node_where(pretending);
  node b;
  CHECK_FALSE(pair_up(*a, b));
  CHECK(b.log.gets(
      "refused a pairing request of this host: the peer's shared memory is not sealed"));
  CHECK(a->log.gets("tcp is used: it could not use the shared memory"));
  shared_world w(*a, b, "unsealed");
  CHECK(transport_of(*a, w.of_a) == "tcp");
  CHECK(carries_same_bytes(*a, b, w));
}

TEST_CASE("a memory limit that is hit as processes meet leaves them tcp, said once") {
  check_tcp_and_said_once(refused(SYS_fallocate, ENOMEM),
                          "reserving shared memory: Cannot allocate memory; usual cause: "
                          "a memory limit");
  check_tcp_and_said_once(
      refused(SYS_fallocate, ENOSPC),
      "reserving shared memory: No space left on device; usual cause: "
      "a memory limit");
}

TEST_CASE(
    "a memory limit that is hit as a world forms leaves that world tcp, said once") {
  node a;
  node b;
  shared_world before(a, b, "before");
  REQUIRE(transport_of(a, before.of_a) == "shm");
  refuse_to_service(a, SYS_fallocate, ENOMEM);
  shared_world first(a, b, "first");
  shared_world second(a, b, "second");
  for (shared_world* w : {&first, &second}) {
    CHECK(transport_of(a, w->of_a) == "tcp");
    CHECK(carries_same_bytes(a, b, *w));
  }
  CHECK(a.log.count("tcp is used for some worlds: Cannot allocate memory") == 1);
  // Law 2: what another world has is not touched.
  CHECK(carries_same_bytes(a, b, before));
}

TEST_CASE("law 9: a memory limit that is hit by traffic makes messages wait, not fail") {
  for (const int error : {ENOMEM, ENOSPC}) {
    CAPTURE(error);
    // Reading is refused too, so that every message needs memory.
    const call_filter asking = refused(SYS_process_vm_readv, EPERM);
    const auto a = node_where(asking);
    const auto b = node_where(asking);
    shared_world w(*a, *b, "narrow");
    REQUIRE(transport_of(*a, w.of_a) == "shm");
    refuse_to_reactor(*a, SYS_fallocate, error);
    CHECK(carries_same_bytes(*a, *b, w));
    CHECK(a->log.gets("no more memory for what is shared with rank 1"));
    CHECK(a->log.count("no more memory", log_level::warning) == 1);
    CHECK_FALSE(b->log.has("no more memory"));
    CHECK(w.of_a.state() == world_state::up);
  }
}

TEST_CASE("law 12: a limit of file sizes costs shared memory, and kills no process") {
  const int result = in_child([] {
    const ::rlimit small{65536, RLIM_INFINITY};
    if (::setrlimit(RLIMIT_FSIZE, &small) != 0) return not_possible_here;
    node a;
    node b;
    if (pair_up(a, b) || !a.log.has("the limit of file sizes (ulimit -f)")) return 2;
    shared_world w(a, b, "limited");
    return carries_same_bytes(a, b, w) ? 0 : 3;
  });
  CHECK(result == 0);
}

#if MANYWORLDS_HAS_IO_URING

TEST_CASE(
    "where io_uring is refused a runtime says so once, and carries the same bytes") {
  for (const int error : {EPERM, ENOSYS, ENOMEM}) {
    CAPTURE(error);
    const auto a = node_where(refused(SYS_io_uring_setup, error));
    node b;
    shared_world w(*a, b, "polled");
    CHECK(carries_same_bytes(*a, b, w));
    CHECK(a->log.count("io_uring is refused here", log_level::warning) == 1);
    CHECK(a->log.count("; using epoll") == 1);
    CHECK(a->log.has(std::strerror(error)));
    CHECK(a->rt.dump().find("reactor: epoll") != std::string::npos);
  }
}

#endif

TEST_SUITE_END();

}  // namespace manyworlds::link_tests
