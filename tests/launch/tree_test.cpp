// All that descends from a program: how it is found and ended, also when this process, or
// the thread that started it, ends first.
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "io/process_tree.hpp"
#include "process_fixture.hpp"
#include "support/refused_calls.hpp"
#include "support/sanitizers.hpp"

namespace manyworlds::launch_tests {

TEST_SUITE_BEGIN("launch");

namespace {

struct family {
  explicit family(const own_folder& here, bool with_hidden) {
    words = {"ignore-term",        "child",  here.file("child"), "session-child",
             here.file("session"), "daemon", here.file("daemon")};
    files = {here.file("child"), here.file("session"), here.file("daemon"),
             here.file("first")};
    if (with_hidden) {
      words.insert(words.end(), {"hidden", here.file("hidden")});
      files.push_back(here.file("hidden"));
    }
    words.insert(words.end(), {"stay", here.file("first")});
  }
  /// The numbers, when all are there.
  [[nodiscard]] std::vector<pid_t> members() const {
    std::vector<pid_t> found;
    for (const std::string& each : files) found.push_back(pid_in(each));
    return found;
  }

  std::vector<std::string> words;
  std::vector<std::string> files;
};

void check_all_end(const std::vector<pid_t>& members, duration limit = 5s) {
  for (const pid_t each : members) CHECK_MESSAGE(ends(each, limit), each);
}

/// Groups that are left of this process.
std::size_t own_groups() {
  std::string why_not;
  const std::string folder = find_group_folder(why_not);
  if (folder.empty()) return 0;
  std::size_t count = 0;
  const std::string prefix = "manyworlds-" + std::to_string(::getpid()) + "-";
  for (const auto& each : std::filesystem::directory_iterator(folder)) {
    if (each.path().filename().string().starts_with(prefix)) ++count;
  }
  return count;
}

bool has_groups() {
  std::string why_not;
  return !find_group_folder(why_not).empty();
}

/// No folder can be made, as in Docker, where the mount is for reading only.
testing::call_filter without_groups() {
  testing::call_filter calls;
  calls.refuse(SYS_mkdir, EROFS).refuse(SYS_mkdirat, EROFS);
  return calls;
}

void stop_family(const own_folder& here, bool with_hidden) {
  node n;
  const family all(here, with_hidden);
  supervised_process one(n.rt, orders(all.words));
  auto started = [&]() -> task<void> { co_await one.started(); };
  n.run(started());
  const std::vector<pid_t> members = all.members();
  auto stopping = [&]() -> task<void> { co_await one.stop(grace(100ms)); };
  n.run(stopping());
  // It has ended when all of it has.
  for (const pid_t each : members) CHECK_FALSE(lives(each));
}

}  // namespace

TEST_CASE("V4 a control group holds what has left its session, parent and environment") {
  if (!has_groups()) {
    MESSAGE("skipped: no control group can be made here");
    return;
  }
  const own_folder here;
  stop_family(here, true);
  CHECK(eventually([] { return own_groups() == 0; }));
}

TEST_CASE("V4 without groups descendants are found by session, parent and environment") {
  const own_folder here;
  testing::where_refused(without_groups(), [&] { stop_family(here, false); });
}

TEST_CASE(
    "V4 without groups a descendant that was found stays found without its parent") {
  const own_folder here;
  testing::where_refused(without_groups(), [&] {
    node n;
    // The first shell ends at SIGTERM, and nothing else leads to the second one.
    const std::string hidden = "trap '' TERM; echo $$ > " + here.file("begun") + "; mv " +
                               here.file("begun") + " " + here.file("hidden") +
                               "; while :; do sleep 1; done";
    supervised_process one(
        n.rt, process_options("/bin/sh",
                              {"-c", "env -i setsid /bin/sh -c \"$0\" & wait", hidden}));
    auto started = [&]() -> task<void> { co_await one.started(); };
    n.run(started());
    const pid_t second = pid_in(here.file("hidden"));
    auto stopping = [&]() -> task<void> { co_await one.stop(grace(200ms)); };
    n.run(stopping());
    CHECK_FALSE(lives(second));
    ::kill(second, SIGKILL);
  });
}

TEST_CASE(
    "V4 what was started while its tree was signalled is signalled, if it is an orphan") {
  const std::string mark = std::string(tree_variable) + "=" + std::to_string(::getpid());
  int ends_of[2] = {-1, -1};
  REQUIRE(::pipe2(ends_of, O_CLOEXEC) == 0);
  const unique_descriptor reads(ends_of[0]);
  unique_descriptor writes(ends_of[1]);
  const auto census = std::make_shared<process_census>(tree_variable);
  const pid_t first = ::fork();
  if (first == 0) {
    ::dup2(reads.get(), STDIN_FILENO);
    std::string own = mark;
    char* const variables[] = {own.data(), nullptr};
    ::execle("/bin/sh", "sh", "-c", "read x; (/bin/sleep 1000 & wait) & read y", nullptr,
             variables);
    ::_exit(127);
  }
  REQUIRE(first > 0);
  listed_tree tree(mark, census);
  const auto now = [&](auto act) {
    tree.ask();
    return act();
  };
  const auto child_of = [](pid_t parent) -> pid_t {
    for (const listed_process& each : list_processes()) {
      if (each.parent == parent && each.is_alive()) return each.pid;
    }
    return 0;
  };
  tree.began(first);
  // It is ignored, unless a program asks for it.
  CHECK(now([&] { return tree.signal(SIGURG); }) == 1);
  REQUIRE(::write(writes.get(), "\n", 1) == 1);
  pid_t child = 0;
  pid_t grandchild = 0;
  CHECK(eventually([&] {
    child = child_of(first);
    grandchild = child == 0 ? 0 : child_of(child);
    return grandchild != 0;
  }));
  // The first one lives, and may have started both to obey.
  CHECK(now([&] { return tree.signal_missed(SIGTERM); }) == 0);
  writes = unique_descriptor();
  int status = 0;
  while (::waitpid(first, &status, 0) < 0 && errno == EINTR) {}
  CHECK(now([&] { return tree.signal_missed(SIGTERM); }) == 2);
  for (const pid_t each : {child, grandchild}) {
    CHECK(ends(each, 20s));
    ::kill(each, SIGKILL);
  }
  CHECK(eventually([&] { return now([&] { return tree.is_empty(); }); }));
}

TEST_CASE("V4 the log says once how descendants are found") {
  testing::where_refused(without_groups(), [] {
    node n;
    run_to_end(n, orders({}));
    run_to_end(n, orders({}));
    CHECK(n.log.count("programs are found by /proc") == 1);
  });
  if (!has_groups()) return;
  node n;
  run_to_end(n, orders({}));
  run_to_end(n, orders({}));
  CHECK(n.log.count("each program gets a control group of its own in /") == 1);
}

TEST_CASE(
    "V4 SIGTERM reaches the descendants, and stop waits for them within the grace") {
  node n;
  const own_folder here;
  supervised_process one(n.rt, orders({"session-child", here.file("child"),
                                       "exit-on-term", "stay", here.file("first")}));
  auto started = [&]() -> task<void> { co_await one.started(); };
  n.run(started());
  const pid_t child = pid_in(here.file("child"));
  pid_in(here.file("first"));
  auto stopping = [&]() -> task<exit_reason> {
    co_await one.stop(grace(20s));
    co_return co_await one.ended();
  };
  CHECK(n.run(stopping()).code == 7);
  CHECK_FALSE(lives(child));
}

TEST_CASE("V4 descendants of a program that has ended go on until it is stopped") {
  node n;
  const own_folder here;
  supervised_process one(n.rt, orders({"daemon", here.file("child"), "exit", "0"}));
  auto ended = [&]() -> task<void> { co_await one.ended(); };
  n.run(ended());
  const pid_t child = pid_in(here.file("child"));
  CHECK(lives(child));
  auto stopping = [&]() -> task<void> { co_await one.stop(grace(10s)); };
  n.run(stopping());
  CHECK_FALSE(lives(child));
}

TEST_CASE("V4 the descendants are gone before a program is started again") {
  node n;
  const own_folder here;
  supervised_process one(
      n.rt, orders({"daemon", here.file("child"), "sleep", "100", "exit", "1"})
                .restart({.when = restart_when::on_failure, .most = 1, .shortest = 1ms}));
  auto ended = [&]() -> task<void> { co_await one.ended(); };
  auto over = n.rt.start(ended());
  const pid_t first = pid_in(here.file("child"));
  n.finish(over);
  CHECK(one.starts() == 2);
  const bool is_gone = !lives(first) || pid_in(here.file("child")) == first;
  CHECK(is_gone);
}

TEST_CASE("V5 the starter killed: its program has ended within a second") {
  const own_folder here;
  node n;
  supervised_process starter(
      n.rt, process_options(LAUNCH_STARTER, {subject, here.file("pid"), "pause"}));
  auto started = [&]() -> task<void> { co_await starter.started(); };
  n.run(started());
  const pid_t program = pid_in(here.file("pid"));
  CHECK(lives(program));
  auto killed = [&]() -> task<void> {
    CHECK(starter.signal(SIGKILL));
    co_await starter.ended();
  };
  n.run(killed());
  CHECK(ends(program, 1s));
}

TEST_CASE("V5 with a guard all of the tree has ended") {
  if (testing::has_thread_sanitizer) {
    MESSAGE("skipped: the thread sanitizer has a thread before any of ours");
    return;
  }
  for (const bool with_groups : {true, false}) {
    if (with_groups && !has_groups()) continue;
    CAPTURE(with_groups);
    const own_folder here;
    const family all(here, with_groups);
    const auto check = [&] {
      // Not by a runtime, which would end the tree as well.
      std::vector<std::string> words{LAUNCH_STARTER, "guard", subject, here.file("pid")};
      words.insert(words.end(), all.words.begin(), all.words.end());
      std::vector<char*> arguments;
      for (std::string& each : words) arguments.push_back(each.data());
      arguments.push_back(nullptr);
      const pid_t starter = ::fork();
      if (starter == 0) {
        ::execv(arguments[0], arguments.data());
        ::_exit(127);
      }
      pid_in(here.file("pid"));
      const std::vector<pid_t> members = all.members();
      ::kill(starter, SIGKILL);
      check_all_end(members);
      ::waitpid(starter, nullptr, 0);
    };
    if (with_groups) {
      check();
    } else {
      testing::where_refused(without_groups(), check);
    }
  }
}

TEST_CASE("V5 what a dead guard would watch is not started, and the guard is named") {
  if (testing::has_thread_sanitizer) {
    MESSAGE("skipped: the thread sanitizer has a thread before any of ours");
    return;
  }
  node n;
  const own_folder here;
  const exit_reason end = run_to_end(
      n, process_options(LAUNCH_STARTER,
                         {"dead-guard", "reason", subject, here.file("reason")}));
  CHECK_MESSAGE(end.is_success(), end.text());
  CHECK(content_of(here.file("reason")) ==
        "not_started: cannot start \"" + std::string(subject) +
            "\", since it cannot tell its guard: broken pipe");
}

TEST_CASE("V5 a guard is made before other threads, and ends with its maker") {
  node n;
  CHECK_THROWS_AS(process_guard(), std::logic_error);
}

TEST_CASE("V6 a program lives on when the thread that asked for its start has ended") {
  node n;
  std::optional<supervised_process> one;
  std::thread([&] {
    one.emplace(n.rt, orders({"pause"}));
    auto started = [&]() -> task<void> { co_await one->started(); };
    n.run(started());
  }).join();
  auto goes_on = [&]() -> task<void> {
    bool timed = false;
    try {
      co_await one->ended().within(100ms);
    } catch (const timed_out&) {
      timed = true;
    }
    CHECK(timed);
    co_await one->stop(grace(10s));
  };
  n.run(goes_on());
}

TEST_CASE("V7 whatever step it is cancelled at, nothing is left") {
  node n;
  const own_folder here;
  run_to_end(n, orders({}));
  const std::size_t descriptors = testing::open_descriptors();
  // The thread sanitizer has a child of its own, which names functions.
  const auto children = [] {
    const std::vector<listed_process> all = list_processes();
    return std::count_if(all.begin(), all.end(), [](const listed_process& each) {
      return each.parent == ::getpid();
    });
  };
  const auto children_before = children();
  for (int step = 0; step < 40; ++step) {
    const std::string file = here.file("child" + std::to_string(step));
    auto life = [&]() -> task<void> {
      supervised_process one(n.rt, orders({"session-child", file, "ignore-term", "print",
                                           "x", "flush", "pause"})
                                       .output(lines([](const output_line&) {})));
      co_await one.started();
      co_await sleep_for(3ms);
      co_await one.stop(grace(5ms));
      co_await sleep_for(1h);
    };
    auto cancelled = [&]() -> task<void> {
      try {
        co_await within(life(), std::chrono::microseconds(400 * step));
      } catch (const timed_out&) {}
    };
    n.run(cancelled());
  }
  const auto nothing_left = [&] {
    return children() <= children_before && testing::open_descriptors() <= descriptors &&
           own_groups() == 0;
  };
  CHECK(eventually(nothing_left));
  for (int step = 0; step < 40; ++step) {
    const std::string file = here.file("child" + std::to_string(step));
    if (std::filesystem::exists(file)) CHECK(ends(pid_in(file)));
  }
}

TEST_CASE("V7 the end of the runtime ends what its tasks have started") {
  const own_folder here;
  pid_t child = 0;
  pid_t first = 0;
  {
    node n;
    auto life = [&]() -> task<void> {
      supervised_process one(n.rt, orders({"session-child", here.file("child"), "stay",
                                           here.file("first")}));
      co_await one.started();
      co_await one.ended();
    };
    (void)n.rt.start(life());
    child = pid_in(here.file("child"));
    first = pid_in(here.file("first"));
  }
  CHECK_FALSE(lives(child));
  CHECK_FALSE(lives(first));
  CHECK(unreaped() == 0);
}

TEST_CASE(
    "V7 without a free descriptor a tree is not taken for ended, and its program is") {
  const auto check = [] {
    node n;
    supervised_process one(n.rt, orders({"ignore-term", "print", "x", "flush", "pause"})
                                     .output(process_output::none()));
    auto started = [&]() -> task<void> { co_await one.started(); };
    n.run(started());
    const pid_t program = one.pid();
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    std::vector<int> held;
    const rlimit few{std::min<rlim_t>(before.rlim_cur, 512), before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
    for (int fd = 0; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;)
      held.push_back(fd);
    auto stopping = [&]() -> task<void> { co_await one.stop(grace(0s)); };
    auto stopped = n.rt.start(stopping());
    // Looking into /proc takes a descriptor.
    const bool has_ended = eventually([&] { return ::kill(program, 0) != 0; }, 10s);
    for (const int each : held) ::close(each);
    ::setrlimit(RLIMIT_NOFILE, &before);
    CHECK(has_ended);
    if (has_ended) n.finish(stopped);
    ::kill(program, SIGKILL);
  };
  if (has_groups()) check();
  testing::where_refused(without_groups(), check);
}

TEST_CASE("the destructor does not wait, and the tree is gone soon") {
  node n;
  const own_folder here;
  pid_t child = 0;
  auto destroyed = [&]() -> task<void> {
    supervised_process one(
        n.rt, orders({"ignore-term", "session-child", here.file("child"), "pause"}));
    co_await one.started();
    child = pid_in(here.file("child"));
  };
  n.run(destroyed());
  CHECK(ends(child));
  CHECK(eventually([] { return unreaped() == 0 && own_groups() == 0; }));
}

TEST_SUITE_END();

}  // namespace manyworlds::launch_tests
