#include <doctest/doctest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <string>
#include <system_error>

#include "manyworlds/config.hpp"
#include "manyworlds/io/engine.hpp"

using namespace manyworlds;

TEST_SUITE_BEGIN("make_engine");

namespace {

/// Makes a system call fail with `error`, for this process from now on.
bool forbid(long call, int error) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/// Runs `body` in a child process; its result is the exit status.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(20);
    ::_exit(body());
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("an engine is made by its name") {
  CHECK(make_engine(engine_kind::epoll).engine->name() == "epoll");
  CHECK(make_engine(engine_kind::epoll).remark.empty());
  if (io_uring_refusal() == 0) {
    CHECK(make_engine(engine_kind::io_uring).engine->name() == "io_uring");
    CHECK(make_engine(engine_kind::automatic).engine->name() == "io_uring");
    CHECK(make_engine(engine_kind::automatic).remark.empty());
  }
}

#if MANYWORLDS_HAS_IO_URING

TEST_CASE("where io_uring is refused epoll takes over and names the usual causes") {
  for (const int refusal : {EPERM, ENOSYS, EOPNOTSUPP, EINVAL}) {
    CHECK(in_child([refusal] {
            if (!forbid(SYS_io_uring_setup, refusal)) return 1;
            if (io_uring_refusal() != refusal) return 2;
            const engine_choice choice = make_engine(engine_kind::automatic);
            if (choice.engine->name() != "epoll") return 3;
            if (choice.remark.find("epoll") == std::string::npos) return 4;
            const bool forbidden = refusal == EPERM || refusal == ENOSYS;
            for (const char* cause : {"seccomp", "kernel.io_uring_disabled"}) {
              if ((choice.remark.find(cause) != std::string::npos) != forbidden) return 5;
            }
            try {
              [[maybe_unused]] const auto made = make_engine(engine_kind::io_uring);
            } catch (const std::system_error& e) {
              return e.code().value() == refusal ? 0 : 6;
            }
            return 7;
          }) == 0);
  }
}

TEST_CASE("exhaustion is reported, not taken for a refusal") {
  for (const int exhaustion : {EMFILE, ENFILE, ENOMEM}) {
    CHECK(in_child([exhaustion] {
            if (!forbid(SYS_io_uring_setup, exhaustion)) return 1;
            try {
              [[maybe_unused]] const auto made = make_engine(engine_kind::automatic);
            } catch (const std::system_error& e) {
              return e.code().value() == exhaustion ? 0 : 2;
            }
            return 3;
          }) == 0);
  }
}

#else

TEST_CASE("a library that was built without io_uring says so, and takes epoll") {
  const engine_choice choice = make_engine(engine_kind::automatic);
  CHECK(choice.engine->name() == "epoll");
  CHECK(choice.remark.find("left out when this library was built") != std::string::npos);
  CHECK_THROWS_AS((void)make_engine(engine_kind::io_uring), std::system_error);
}

#endif

TEST_CASE("exhaustion of what epoll needs is reported") {
  for (const long call : {SYS_epoll_create1, SYS_eventfd2}) {
    CHECK(in_child([call] {
            if (!forbid(call, EMFILE)) return 1;
            try {
              [[maybe_unused]] const auto made = make_engine(engine_kind::epoll);
            } catch (const std::system_error& e) {
              return e.code().value() == EMFILE ? 0 : 2;
            }
            return 3;
          }) == 0);
  }
}

TEST_SUITE_END();
