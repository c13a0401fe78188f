#include <doctest/doctest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "io/engine.hpp"
#include "manyworlds/detail/config.hpp"
#include "support/refused_calls.hpp"
#include "support/refused_here.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("make_engine");

namespace {

call_filter refused(long call, int error) { return call_filter().refuse(call, error); }

/// 0 if it could be made.
int error_of_making(engine_kind kind) {
  try {
    [[maybe_unused]] const auto made = make_engine(kind);
  } catch (const std::system_error& e) {
    return e.code().value();
  }
  return 0;
}

}  // namespace

TEST_CASE("an engine is made by its name") {
  CHECK(make_engine(engine_kind::epoll).engine->name() == "epoll");
  CHECK(make_engine(engine_kind::epoll).warning.empty());
  if (!io_uring_is_refused_here()) {
    CHECK(make_engine(engine_kind::io_uring).engine->name() == "io_uring");
    CHECK(make_engine(engine_kind::automatic).engine->name() == "io_uring");
    CHECK(make_engine(engine_kind::automatic).warning.empty());
  }
}

#if MANYWORLDS_HAS_IO_URING

TEST_CASE("where io_uring is refused epoll takes over and names the usual causes") {
  for (const int refusal : {EPERM, ENOSYS, ENOMEM, EOPNOTSUPP, EINVAL}) {
    CAPTURE(refusal);
    where_refused(refused(SYS_io_uring_setup, refusal), [refusal] {
      CHECK(io_uring_refusal() == refusal);
      const engine_choice choice = make_engine(engine_kind::automatic);
      CHECK(choice.engine->name() == "epoll");
      CHECK(choice.warning.find("using epoll") != std::string::npos);
      const bool forbidden = refusal == EPERM || refusal == ENOSYS;
      for (const char* cause : {"seccomp", "kernel.io_uring_disabled"}) {
        CHECK((choice.warning.find(cause) != std::string::npos) == forbidden);
      }
      CHECK((choice.warning.find("ulimit -l") != std::string::npos) ==
            (refusal == ENOMEM));
    });
  }
}

TEST_CASE("where io_uring is refused and insisted on, that is an error") {
  for (const int refusal : {EPERM, ENOSYS, ENOMEM, EOPNOTSUPP, EINVAL}) {
    CAPTURE(refusal);
    where_refused(refused(SYS_io_uring_setup, refusal), [refusal] {
      CHECK(error_of_making(engine_kind::io_uring) == refusal);
    });
  }
}

TEST_CASE("being out of descriptors is reported, not taken for a refusal") {
  for (const int exhaustion : {EMFILE, ENFILE}) {
    CAPTURE(exhaustion);
    where_refused(refused(SYS_io_uring_setup, exhaustion), [exhaustion] {
      CHECK(error_of_making(engine_kind::automatic) == exhaustion);
    });
  }
}

#else

TEST_CASE("a library that was built without io_uring says so, and takes epoll") {
  const engine_choice choice = make_engine(engine_kind::automatic);
  CHECK(choice.engine->name() == "epoll");
  CHECK(choice.warning.find("left out when this library was built") != std::string::npos);
  CHECK_THROWS_AS((void)make_engine(engine_kind::io_uring), std::system_error);
}

#endif

TEST_CASE("exhaustion of what epoll needs is reported") {
  for (const long call : {SYS_epoll_create1, SYS_eventfd2}) {
    CAPTURE(call);
    where_refused(refused(call, EMFILE),
                  [] { CHECK(error_of_making(engine_kind::epoll) == EMFILE); });
  }
}

TEST_SUITE_END();
