// The devices and CPUs of a session's workers. What they do there is in tests/nccl.
#include <sched.h>
#include <stdlib.h>

#include <algorithm>

#include "manyworlds/nccl/device_count.hpp"
#include "manyworlds/nccl/device_error.hpp"
#include "session_fixture.hpp"
#include "spmd/worker_invitation.hpp"

namespace manyworlds::spmd_tests {

namespace {

session_options on_devices(const char* list = "") {
  session_options limits;
  limits.backend = backend_kind::nccl;
  limits.devices = list;
  return limits;
}

/// What a session says that does not start.
std::string start_refusal(worker_kind kind, int workers, session_options limits) {
  try {
    in_session(
        kind, workers, [](session&) -> task<void> { co_return; }, limits);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "it starts";
}

/// Why this machine has no device; nothing if it has one.
std::string no_device_here() {
  try {
    static_cast<void>(device_count());
  } catch (const device_error& e) {
    return e.what();
  }
  return {};
}

/// A variable of this process, which workers inherit, as long as this lives.
class set_variable {
 public:
  set_variable(const char* name, const char* value) : name_(name) {
    const char* const found = ::getenv(name);
    if (found != nullptr) before_ = found;
    ::setenv(name, value, 1);
  }
  set_variable(const set_variable&) = delete;
  set_variable& operator=(const set_variable&) = delete;
  ~set_variable() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }

 private:
  const char* const name_;
  std::optional<std::string> before_;
};

}  // namespace

TEST_CASE("a list of devices that cannot be is refused at the start") {
  const std::pair<const char*, const char*> lists[] = {
      {"0,1,x", "are no list of numbers"},
      {"0;1;2", "are no list of numbers"},
      {"0,1,", "are no list of numbers"},
      {"0, 1, 2", "are no list of numbers"},
      {"-1,0,1", "are no list of numbers"},
      {"0,1,99999999999", "are no list of numbers"},
      {"0,1", "are too few for the 3 workers of a host"},
  };
  for (const auto& each : lists) {
    const char* const list = each.first;
    const char* const why = each.second;
    CAPTURE(list);
    const std::string said = start_refusal(worker_kind::processes, 3, on_devices(list));
    CHECK(said == "session: its devices \"" + std::string(list) + "\" " + why +
                      (why[4] == 'n' ? ", as \"0,1,2\"" : ""));
  }
  session_options on_hosts;
  on_hosts.devices = "0";
  CHECK(start_refusal(worker_kind::threads, 1, on_hosts) ==
        "session: its devices \"0\" need the backend nccl");
}

TEST_CASE("a session for NCCL says of each worker why it has no device") {
  // Where they are emulated.
  const set_variable none("EMULATED_CUDA_DEVICES", "0");
  const std::string why = no_device_here();
  if (why.empty()) {
    MESSAGE("skipped: this machine has a device");
    return;
  }
  for (const worker_kind kind :
       {worker_kind::threads, worker_kind::processes, worker_kind::nodes}) {
    CAPTURE(static_cast<int>(kind));
    const std::string said = start_refusal(kind, 2, on_devices());
    CAPTURE(said);
    CHECK(said.find(why) != std::string::npos);
    CHECK(said.find(why, said.find("worker 1: ")) != std::string::npos);
  }
}

TEST_CASE("disco A14: a worker knows the CPU that it is bound to") {
  cpu_set_t allowed;
  REQUIRE(::sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  unsigned last = 0;
  for (unsigned i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &allowed)) last = i;
  process_options how(SESSION_WORKER);
  how.cpus({last});
  runtime rt;
  auto whole = [&]() -> task<void> {
    session bound = co_await session::start(rt, processes{.workers = 1, .how = &how});
    CHECK(co_await bound.call(cpu_here).from(0) == static_cast<int>(last));
    session free = co_await start_session(rt, worker_kind::processes, 1);
    const int wanted = CPU_COUNT(&allowed) == 1 ? static_cast<int>(last) : -1;
    CHECK(co_await free.call(cpu_here).from(0) == wanted);
    co_await bound.close();
    co_await free.close();
  };
  rt.run(in_time(whole()));
}

TEST_CASE("an invitation says which device a worker has") {
  detail::worker_invitation given;
  given.seat = {"a session", 5, 8, 3, on_devices("3,1"), 1};
  given.store = "127.0.0.1:7000";
  const auto got = detail::worker_invitation::of(given.text());
  CHECK(got.seat.session == "a session");
  CHECK(got.seat.id == 5);
  CHECK(got.seat.on_host == 1);
  CHECK(got.seat.limits.backend == backend_kind::nccl);
  CHECK(got.seat.limits.devices == inline_text<63>("3,1"));
  given.seat.limits = {};
  const auto plain = detail::worker_invitation::of(given.text());
  CHECK(plain.seat.limits.backend == backend_kind::host);
  CHECK(plain.seat.limits.devices.empty());
  CHECK_THROWS_AS((void)detail::worker_invitation::of("4 x"), std::invalid_argument);
}

#if defined(EMULATED_DEVICES)
TEST_CASE(
    "disco A14: each host has its devices, in the order of its workers or as they are "
    "listed") {
  const set_variable here("LD_LIBRARY_PATH", EMULATED_DEVICES);
  // Two nodes of two workers.
  in_session(
      worker_kind::nodes, 4,
      [](session& s) -> task<void> {
        CHECK(co_await s.call(device_here).all() == ints(0, 1, 0, 1));
      },
      on_devices());
  in_session(
      worker_kind::nodes, 4,
      [](session& s) -> task<void> {
        CHECK(co_await s.call(device_here).all() == ints(5, 2, 5, 2));
      },
      on_devices("5,2,3"));
  in_session(
      worker_kind::processes, 2,
      [](session& s) -> task<void> {
        CHECK(co_await s.call(device_here).all() == ints(0, 1));
      },
      on_devices());
}

TEST_CASE("the workers of a node add up on its devices") {
  const set_variable here("LD_LIBRARY_PATH", EMULATED_DEVICES);
  in_session(
      worker_kind::nodes, 3,
      [](session& s) -> task<void> {
        CHECK(co_await s.call(sum_on_devices, 2).all() == ints(9, 9, 9));
      },
      on_devices());
}
#endif

}  // namespace manyworlds::spmd_tests
