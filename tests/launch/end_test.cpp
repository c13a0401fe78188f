// How processes end: each reason, also where other code waits for children.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "process_fixture.hpp"
#include "support/refused_calls.hpp"
#include "support/sanitizers.hpp"

namespace manyworlds::launch_tests {

TEST_SUITE_BEGIN("launch");

namespace {

/// Starts it, waits until it says that it is ready, stops it.
exit_reason stopped_after(node& n, process_options how, duration patience) {
  event ready;
  how.output(lines([&](const output_line&) { ready.set(); }));
  supervised_process one(n.rt, std::move(how));
  auto stopping = [&]() -> task<exit_reason> {
    co_await one.started();
    co_await within(ready.wait(), 10s);
    co_await one.stop(grace(patience));
    co_return co_await one.ended();
  };
  return n.run(stopping());
}

/// A memory control group of version 1 with a limit, that a starter enters.
class small_group {
 public:
  small_group() {
    path_ = "/sys/fs/cgroup/memory/mw-test-" + std::to_string(::getpid());
    if (::mkdir(path_.c_str(), 0755) != 0) return;
    std::ofstream(path_ + "/memory.limit_in_bytes") << (64 << 20);
    is_there_ = std::ifstream(path_ + "/memory.oom_control").good() &&
                content_of(path_ + "/memory.limit_in_bytes") == "67108864\n";
  }
  small_group(const small_group&) = delete;
  small_group& operator=(const small_group&) = delete;
  ~small_group() {
    (void)eventually([&] { return ::rmdir(path_.c_str()) == 0 || errno == ENOENT; }, 5s);
  }
  [[nodiscard]] bool is_there() const { return is_there_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool is_there_ = false;
};

/// A program of which the end is shown to its tracer alone, until that file is there.
struct traced_program {
  traced_program(node& n, const std::string& let_go)
      : process(n.rt, orders({"be-traced", let_go, "flush", "pause"})
                          .output(lines([this](const output_line& line) {
                            is_traced = line.text == "traced";
                            said.set();
                          }))) {}

  task<pid_t> begin_and_kill() {
    co_await process.started();
    co_await within(said.wait(), 10s);
    if (!is_traced) MESSAGE("no process may trace another one here");
    const pid_t pid = process.pid();
    CHECK(process.signal(SIGKILL));
    CHECK(ends(pid));
    co_return pid;
  }

  event said;
  bool is_traced = false;
  supervised_process process;
};

}  // namespace

TEST_CASE("V2 an exit code and a signal are told apart") {
  node n;
  const exit_reason well = run_to_end(n, orders({}));
  CHECK(well.kind == exit_kind::exited);
  CHECK(well.is_success());
  CHECK(well.pid > 0);
  CHECK(well.ran_for > duration::zero());
  const exit_reason code = run_to_end(n, orders({"exit", "3"}));
  CHECK(code.kind == exit_kind::exited);
  CHECK(code.code == 3);
  CHECK_FALSE(code.is_success());
  const exit_reason killed = run_to_end(n, orders({"signal", std::to_string(SIGUSR1)}));
  CHECK(killed.kind == exit_kind::signaled);
  CHECK(killed.signal == SIGUSR1);
  CHECK_FALSE(killed.core_dumped);
  CHECK(killed.text().find("was ended by SIGUSR1") != std::string::npos);
}

TEST_CASE("V2 a SIGKILL from elsewhere is no end of ours") {
  node n;
  supervised_process one(n.rt, orders({"pause"}));
  auto killed = [&]() -> task<exit_reason> {
    co_await one.started();
    const pid_t pid = one.pid();
    // 0 would mean this process.
    if (pid > 0) ::kill(pid, SIGKILL);
    co_return co_await one.ended().within(10s);
  };
  const exit_reason end = n.run(killed());
  // A machine that is out of memory at this moment would be blamed instead.
  CHECK((end.kind == exit_kind::signaled || end.kind == exit_kind::out_of_memory));
  CHECK(end.signal == SIGKILL);
  CHECK(end.stop == stop_step::none);
}

TEST_CASE("V2 a core dump is told where the kernel makes one") {
  rlimit allowed{};
  ::getrlimit(RLIMIT_CORE, &allowed);
  // A sanitizer forbids them, for its size.
  if (testing::has_address_sanitizer || testing::has_thread_sanitizer ||
      allowed.rlim_max == 0 || content_of("/proc/sys/kernel/core_pattern") != "core\n") {
    MESSAGE("skipped: cores go elsewhere here, or are not allowed");
    return;
  }
  node n;
  const own_folder here;
  const exit_reason end = run_to_end(n, orders({"signal", std::to_string(SIGABRT)})
                                            .folder(here.path())
                                            .core_size(64 << 20));
  CHECK(end.signal == SIGABRT);
  CHECK(end.core_dumped);
  CHECK(end.text().find("left a core dump") != std::string::npos);
  CHECK_FALSE(run_to_end(n, orders({"signal", std::to_string(SIGABRT)}).core_size(0))
                  .core_dumped);
}

TEST_CASE("V2 what we ended says by which step") {
  node n;
  const exit_reason asked =
      stopped_after(n, orders({"print", "x", "flush", "pause"}), 10s);
  CHECK(asked.kind == exit_kind::stopped);
  CHECK(asked.stop == stop_step::asked);
  CHECK(asked.signal == SIGTERM);
  const exit_reason gently =
      stopped_after(n, orders({"exit-on-term", "print", "x", "flush", "pause"}), 10s);
  CHECK(gently.stop == stop_step::asked);
  CHECK(gently.code == 7);
  const exit_reason killed =
      stopped_after(n, orders({"ignore-term", "print", "x", "flush", "pause"}), 50ms);
  CHECK(killed.kind == exit_kind::stopped);
  CHECK(killed.stop == stop_step::killed);
  CHECK(killed.signal == SIGKILL);
  const exit_reason at_once =
      stopped_after(n, orders({"print", "x", "flush", "pause"}), 0s);
  CHECK(at_once.stop == stop_step::killed);
}

TEST_CASE("V2 stopping what has ended by itself keeps its reason") {
  node n;
  supervised_process one(n.rt, orders({"exit", "5"}));
  auto stopping = [&]() -> task<exit_reason> {
    co_await one.ended();
    co_await one.stop();
    co_return co_await one.ended();
  };
  const exit_reason end = n.run(stopping());
  CHECK(end.kind == exit_kind::exited);
  CHECK(end.code == 5);
}

TEST_CASE("V2 the kernel's kill for memory is told as such") {
  const small_group group;
  if (!group.is_there() || testing::has_address_sanitizer ||
      testing::has_thread_sanitizer) {
    MESSAGE("skipped: no memory control group of version 1 can be made here");
    return;
  }
  // Another process of ours enters the group, so that this one has no limit.
  const own_folder here;
  node n;
  process_options how(
      "/bin/sh",
      {"-c", "echo $$ > " + group.path() + "/cgroup.procs && exec \"$@\"", "sh",
       LAUNCH_STARTER, "reason", subject, here.file("reason"), "allocate", "128"});
  const exit_reason end = run_to_end(n, how);
  CHECK_MESSAGE(end.is_success(), end.text());
  CHECK(content_of(here.file("reason")).starts_with("out_of_memory"));
}

TEST_CASE("V3 a program that waits for any child gets an error, and no hang") {
  node n;
  std::atomic<bool> over{false};
  std::thread thief([&] {
    while (!over) {
      if (::waitpid(-1, nullptr, WNOHANG) <= 0)
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  bool was_stolen = false;
  // Which of both waits first is chance.
  for (int i = 0; i < 200 && !was_stolen; ++i) {
    const exit_reason end = run_to_end(n, orders({"exit", "3"}));
    was_stolen = end.kind == exit_kind::reaped_elsewhere;
    CHECK((was_stolen || end.code == 3));
    if (was_stolen) CHECK(end.text().find("waited for it") != std::string::npos);
  }
  over = true;
  thief.join();
  CHECK(was_stolen);
}

TEST_CASE("V3 a program that ignores SIGCHLD gets an error, and no hang") {
  node n;
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  const exit_reason end = run_to_end(n, orders({"exit", "3"}));
  supervised_process stopped(n.rt, orders({"pause"}));
  auto stopping = [&]() -> task<exit_reason> {
    co_await stopped.started();
    co_await stopped.stop(grace(10s));
    co_return co_await stopped.ended();
  };
  const exit_reason asked = n.run(stopping());
  ::signal(SIGCHLD, before);
  CHECK(end.kind == exit_kind::reaped_elsewhere);
  CHECK(end.text().find("SIGCHLD") != std::string::npos);
  CHECK(asked.kind == exit_kind::reaped_elsewhere);
}

TEST_CASE("V3 the same where the kernel gives no pidfd") {
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  testing::call_filter calls;
  calls.refuse(SYS_clone3, ENOSYS).refuse(SYS_pidfd_open, ENOSYS);
  calls.refuse_with_bits(SYS_clone, 0, 0x1000, EINVAL);
  testing::where_refused(calls, [] {
    node n;
    CHECK(run_to_end(n, orders({"exit", "3"})).kind == exit_kind::reaped_elsewhere);
  });
  ::signal(SIGCHLD, before);
}

TEST_CASE("V2 the end of a traced program is told when its tracer lets go of it") {
  const own_folder here;
  const std::string let_go = here.file("let-go");
  node n;
  traced_program one(n, let_go);
  auto held = [&]() -> task<exit_reason> {
    static_cast<void>(co_await one.begin_and_kill());
    bool has_ended = true;
    try {
      co_await one.process.ended().within(100ms);
    } catch (const timed_out&) {
      has_ended = false;
    }
    if (one.is_traced) CHECK_FALSE(has_ended);
    std::ofstream(let_go).flush();
    co_return co_await one.process.ended().within(20s);
  };
  const exit_reason end = n.run(held());
  CHECK_MESSAGE(end.kind == exit_kind::signaled, end.text());
  CHECK(end.signal == SIGKILL);
  CHECK(unreaped() == 0);
}

TEST_CASE("V2 a tracer that does not let go of a program costs its code, and no hang") {
  const own_folder here;
  node n;
  traced_program one(n, here.file("never"));
  pid_t pid = 0;
  auto held = [&]() -> task<exit_reason> {
    pid = co_await one.begin_and_kill();
    co_return co_await one.process.ended().within(20s);
  };
  const exit_reason end = n.run(held());
  if (!one.is_traced) return;
  CHECK(end.kind == exit_kind::reaped_elsewhere);
  CHECK(end.text().find("a debugger has not let go of it") != std::string::npos);
  // The tracer is of the program's tree, and ends with it.
  auto stopping = [&]() -> task<void> { co_await one.process.stop(grace(0s)); };
  n.run(stopping());
  CHECK(eventually([&] { return ::waitpid(pid, nullptr, WNOHANG) == pid; }));
}

TEST_CASE("children that are not ours stay unreaped for their owner") {
  node n;
  const pid_t other = ::fork();
  if (other == 0) ::_exit(42);
  run_to_end(n, orders({}));
  int status = 0;
  CHECK(::waitpid(other, &status, 0) == other);
  CHECK(WEXITSTATUS(status) == 42);
}

TEST_CASE("the end is awaited by several tasks, and a deadline ends the wait alone") {
  node n;
  supervised_process one(n.rt, orders({"pause"}));
  auto waiting = [&]() -> task<void> {
    co_await one.started();
    CHECK(one.pid() > 0);
    bool timed = false;
    try {
      co_await one.ended().within(20ms);
    } catch (const timed_out&) {
      timed = true;
    }
    CHECK(timed);
    CHECK(one.pid() > 0);
    const auto ends_so = [&]() -> task<void> {
      const exit_reason end = co_await one.ended();
      CHECK(end.stop == stop_step::asked);
    };
    const auto both = [&](scope& s) -> task<void> {
      s.spawn(ends_so());
      s.spawn(ends_so());
      co_await one.stop(grace(10s));
    };
    co_await scope::run(both);
    CHECK(one.pid() == 0);
    CHECK_FALSE(one.signal(SIGTERM));
    CHECK(one.starts() == 1);
  };
  n.run(waiting());
}

TEST_CASE("a signal reaches the program") {
  node n;
  supervised_process one(n.rt, orders({"pause"}));
  auto signalled = [&]() -> task<exit_reason> {
    co_await one.started();
    CHECK(one.signal(SIGHUP));
    co_return co_await one.ended().within(10s);
  };
  const exit_reason end = n.run(signalled());
  CHECK(end.kind == exit_kind::signaled);
  CHECK(end.signal == SIGHUP);
}

TEST_CASE("what is stopped before it was started never is") {
  node n;
  supervised_process one(n.rt, orders({"pause"}));
  auto stopping = [&]() -> task<void> {
    co_await one.stop();
    const exit_reason end = co_await one.ended();
    CHECK(end.kind == exit_kind::stopped);
    CHECK(end.text() ==
          "\"" + std::string(subject) + "\" was stopped before it was started");
    CHECK_THROWS_AS(co_await one.started(), process_error);
  };
  n.run(stopping());
  CHECK(one.starts() == 0);
}

TEST_SUITE_END();

}  // namespace manyworlds::launch_tests
