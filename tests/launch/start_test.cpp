// What a program is started with, and each way in which a start fails.
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "process_fixture.hpp"
#include "support/refused_calls.hpp"

namespace manyworlds::launch_tests {

TEST_SUITE_BEGIN("launch");

namespace {

void make_file(const std::string& path, const std::string& text, int mode) {
  std::ofstream(path) << text;
  std::filesystem::permissions(path, static_cast<std::filesystem::perms>(mode));
}

/// The text of the error that `started` throws, which `ended` gives as well.
std::string why_not(node& n, process_options how, start_step step, int error) {
  supervised_process one(n.rt, std::move(how));
  auto wait = [&]() -> task<std::string> {
    std::string text;
    try {
      co_await one.started();
      text = "it was started";
    } catch (const process_error& e) {
      text = e.what();
    }
    const exit_reason end = co_await one.ended().within(10s);
    CHECK(end.kind == exit_kind::not_started);
    CHECK(end.step == step);
    CHECK(end.error == error);
    CHECK(end.text() == text);
    co_return text;
  };
  return n.run(wait());
}

}  // namespace

TEST_CASE("V1 a program that cannot be executed is named with the cause") {
  node n;
  const own_folder here;
  const auto refused = [&](const std::string& program, int error) {
    return why_not(n, process_options(program), start_step::execute, error);
  };
  CHECK(refused("/nowhere/engine", ENOENT) ==
        "cannot execute \"/nowhere/engine\": no such file or directory");
  CHECK(refused("no-such-program-of-ours", ENOENT) ==
        "cannot execute \"no-such-program-of-ours\": no such file or directory");
  CHECK(refused("", ENOENT) == "cannot execute \"\": no such file or directory");
  const std::string closed = here.file("closed");
  make_file(closed, "#!/bin/sh\n", 0644);
  CHECK(refused(closed, EACCES) ==
        "cannot execute \"" + closed + "\": permission denied");
  CHECK(refused(here.path(), EACCES) ==
        "cannot execute \"" + here.path() + "\": permission denied");
  const std::string text = here.file("text");
  make_file(text, "echo no shell reads this\n", 0755);
  CHECK(refused(text, ENOEXEC) == "cannot execute \"" + text + "\": exec format error");
  const std::string script = here.file("script");
  make_file(script, "#!/nowhere/shell\n", 0755);
  CHECK(refused(script, ENOENT) ==
        "cannot execute \"" + script +
            "\", since its interpreter is not there: no such file or directory");
}

TEST_CASE("V1 each step of a start that fails is named with what it concerned") {
  node n;
  const auto refused = [&](process_options how, start_step step, int error) {
    return why_not(n, std::move(how), step, error);
  };
  const std::string before =
      "cannot start \"" + std::string(subject) + "\", since it cannot ";
  CHECK(refused(orders({}).folder("/nowhere"), start_step::folder, ENOENT) ==
        before + "enter its working folder (/nowhere): no such file or directory");
  CHECK(refused(orders({}).pass(987, 5), start_step::descriptors, EBADF) ==
        before + "pass its descriptors (987 as 5): bad file descriptor");
  CHECK(refused(orders({}).open_files(1u << 31), start_step::limits, EPERM) ==
        before + "set its resource limits (open files): operation not permitted");
  CHECK(refused(orders({}).cpus({60000}), start_step::cpus, EINVAL) ==
        before + "bind it to its CPUs (CPU 60000): invalid argument");
  CHECK(refused(orders({}).output(to_file("/nowhere/log")), start_step::output, ENOENT) ==
        before + "open its output file (/nowhere/log): no such file or directory");
  const auto both = tee(to_file("/nowhere/log"), process_output::inherit());
  CHECK(refused(orders({}).output(both), start_step::output, ENOENT) ==
        before + "open its output file (/nowhere/log): no such file or directory");
  supervised_process bound(n.rt, orders({}).memory_node(1000));
  auto wait = [&]() -> task<exit_reason> { co_return co_await bound.ended(); };
  const exit_reason end = n.run(wait());
  // A container refuses the call, a machine the node.
  CHECK(end.step == start_step::memory_node);
  CHECK((end.error == EINVAL || end.error == EPERM));
  CHECK(end.text().find("bind its memory to a NUMA node (node 1000)") !=
        std::string::npos);
  CHECK(unreaped() == 0);
}

TEST_CASE(
    "V1 without processes, sessions or a signal at the starter's end nothing starts") {
  const auto refused = [](long call, int error, start_step step) {
    testing::call_filter calls;
    calls.refuse(call, error);
    testing::where_refused(calls, [&] {
      node n;
      why_not(n, orders({}), step, error);
    });
  };

  testing::call_filter no_process;
  constexpr unsigned as_vfork = 0x4000;  // CLONE_VFORK, which no thread is made with
  no_process.refuse(SYS_clone3, ENOSYS);
  no_process.refuse_with_bits(SYS_clone, 0, as_vfork, EAGAIN);
  testing::where_refused(no_process, [] {
    node n;
    why_not(n, orders({}), start_step::process, EAGAIN);
  });
  refused(SYS_setsid, EPERM, start_step::session);
  refused(SYS_prctl, EPERM, start_step::parent);
}

TEST_CASE("V1 options that no program can be given are refused where they are said") {
  CHECK_THROWS_AS(process_options(std::string("a\0b", 3)), std::invalid_argument);
  process_options how("true");
  CHECK_THROWS_AS(how.set("A=B", "1"), std::invalid_argument);
  CHECK_THROWS_AS(how.set("", "1"), std::invalid_argument);
  CHECK_THROWS_AS(how.argument(std::string("\0", 1)), std::invalid_argument);
  CHECK_THROWS_AS(how.pass(-1, 3), std::invalid_argument);
  CHECK_THROWS_AS(how.pass(3, 1), std::invalid_argument);
  how.pass(4, 3);
  CHECK_THROWS_AS(how.pass(5, 3), std::invalid_argument);
  CHECK_THROWS_AS(how.limit(1000, 1), std::invalid_argument);
}

TEST_CASE("a program gets its arguments as they are, and a session of its own") {
  node n;
  CHECK(output_of(n, orders({"print", "a b", "print", "$HOME;*", "print", ""})) ==
        "a b\n$HOME;*\n\n");
  CHECK(output_of(n, orders({"session"})) == "own\n");
}

TEST_CASE("a program without a slash is found along PATH of its own environment") {
  node n;
  const own_folder here;
  std::filesystem::create_directory(here.file("first"));
  std::filesystem::create_directory(here.file("second"));
  // Neither is executed: a folder, and a file without the right.
  std::filesystem::create_directory(here.file("first/found"));
  make_file(here.file("second/found"), "#!/bin/sh\necho second\n", 0644);
  process_options how("found");
  how.set("PATH", here.file("first") + ':' + here.file("second"));
  CHECK(why_not(n, how, start_step::execute, EACCES) ==
        "cannot execute \"found\": permission denied");
  make_file(here.file("second/found"), "#!/bin/sh\necho second\n", 0755);
  CHECK(output_of(n, how) == "second\n");
  how.set("PATH", ":/nowhere").folder(here.file("second"));
  CHECK(output_of(n, how) == "second\n");
}

TEST_CASE("the environment is inherited, changed and cleared") {
  node n;
  ::setenv("MW_LAUNCH_TEST", "inherited", 1);
  CHECK(output_of(n, orders({"variable", "MW_LAUNCH_TEST"})) == "inherited\n");
  CHECK(
      output_of(n, orders({"variable", "MW_LAUNCH_TEST"}).set("MW_LAUNCH_TEST", "own")) ==
      "own\n");
  CHECK(output_of(n, orders({"variable", "MW_LAUNCH_TEST"}).unset("MW_LAUNCH_TEST")) ==
        "(unset)\n");
  CHECK(output_of(n, orders({"variable", "MW_LAUNCH_TEST", "variable", "A"})
                         .clear_environment()
                         .set("A", "1")) == "(unset)\n1\n");
  ::unsetenv("MW_LAUNCH_TEST");
}

TEST_CASE("folder, limits and CPUs are those that were asked for") {
  node n;
  const own_folder here;
  CHECK(
      output_of(n, orders({"folder", "open-files"}).folder(here.path()).open_files(77)) ==
      here.path() + "\n77\n");
  const int cpu = ::sched_getcpu();
  REQUIRE(cpu >= 0);
  CHECK(output_of(
            n,
            orders({"status", "Cpus_allowed_list"}).cpus({static_cast<unsigned>(cpu)})) ==
        "Cpus_allowed_list:\t" + std::to_string(cpu) + "\n");
}

TEST_CASE("V9 a program gets the descriptors that were passed, and no others") {
  node n;
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const int leaked = ::open("/dev/null", O_RDONLY);
  const int high = ::fcntl(leaked, F_DUPFD, 900);
  CHECK(output_of(n, orders({"descriptors"})) == "0 1 2 \n");
  // The numbers are also those of descriptors that are in use here.
  CHECK(
      output_of(
          n,
          orders({"descriptors", "write-to", "3"}).pass(pipe[1], 3).pass(leaked, high)) ==
      "0 1 2 3 " + std::to_string(high) + " \n");
  char got[8]{};
  CHECK(::read(pipe[0], got, sizeof got) == 6);
  CHECK(std::string(got) == "passed");
  for (const int each : {pipe[0], pipe[1], leaked, high}) ::close(each);
}

TEST_CASE("V9 the same where the kernel closes no range of descriptors") {
  for (const int error : {ENOSYS, EINVAL, EPERM}) {
    testing::call_filter calls;
    calls.refuse(436, error);  // close_range
    testing::where_refused(calls, [] {
      node n;
      const int leaked = ::open("/dev/null", O_RDONLY);
      const int high = ::fcntl(leaked, F_DUPFD, 900);
      CHECK(output_of(n, orders({"descriptors"}).pass(leaked, 800)) == "0 1 2 800 \n");
      ::close(leaked);
      ::close(high);
    });
  }
}

TEST_CASE("V9 starts leave no descriptor here, also those that fail") {
  node n;
  run_to_end(n, orders({}));
  const std::size_t before = testing::open_descriptors();
  for (int i = 0; i < 10; ++i) {
    run_to_end(n, orders({"print", "x"}).output(lines([](const output_line&) {})));
    run_to_end(n, process_options("/nowhere").output(to_file("/dev/null")));
    run_to_end(n, orders({}).folder("/nowhere").output(lines([](const output_line&) {})));
  }
  CHECK(eventually([&] { return testing::open_descriptors() <= before; }));
}

TEST_CASE("a program has no blocked and no ignored signals of ours") {
  // Threads of a runtime block all.
  const auto before = ::signal(SIGUSR2, SIG_IGN);
  node n;
  const std::string status =
      output_of(n, orders({"status", "SigBlk", "status", "SigIgn", "status", "SigCgt"}));
  CHECK(status.find("SigBlk:\t0000000000000000") != std::string::npos);
  CHECK(status.find("SigIgn:\t0000000000000000") != std::string::npos);
  ::signal(SIGUSR2, before);
}

TEST_CASE("programs start where the kernel gives no pidfd") {
  testing::call_filter calls;
  calls.refuse(SYS_clone3, ENOSYS).refuse(SYS_pidfd_open, ENOSYS);
  calls.refuse_with_bits(SYS_clone, 0, 0x1000, EINVAL);
  testing::where_refused(calls, [] {
    node n;
    CHECK(run_to_end(n, orders({"exit", "3"})).code == 3);
    supervised_process one(n.rt, orders({"pause"}));
    auto stopping = [&]() -> task<exit_reason> {
      co_await one.started();
      co_await one.stop(grace(10s));
      co_return co_await one.ended();
    };
    CHECK(n.run(stopping()).stop == stop_step::asked);
  });
  CHECK(unreaped() == 0);
}

TEST_SUITE_END();

}  // namespace manyworlds::launch_tests
