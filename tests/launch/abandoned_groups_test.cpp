// Control groups that a starter has left which was killed: the next start empties them.
#include "io/abandoned_groups.hpp"

#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdint>

#include "io/process_tree.hpp"
#include "process_fixture.hpp"

namespace manyworlds::launch_tests {

TEST_SUITE_BEGIN("launch");

namespace {

std::uint64_t pid_namespace() {
  struct stat is {};
  REQUIRE(::stat("/proc/self/ns/pid", &is) == 0);
  return is.st_ino;
}

std::uint64_t start_of(pid_t pid) {
  const auto seen = look_at_process(pid);
  return seen ? seen->started : 0;
}

std::string name_by(pid_t maker, std::uint64_t started,
                    std::uint64_t in = pid_namespace()) {
  return "manyworlds-" + std::to_string(maker) + '-' + std::to_string(started) + '-' +
         std::to_string(in) + "-0123456789abcdef";
}

/// A child that has ended. It is reaped by `reap`.
struct ended_child {
  ended_child() : pid(::fork()) {
    if (pid == 0) ::_exit(0);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
    started = start_of(pid);
  }
  ended_child(const ended_child&) = delete;
  ended_child& operator=(const ended_child&) = delete;
  ~ended_child() { reap(); }
  void reap() {
    if (!is_reaped) ::waitpid(pid, nullptr, 0);
    is_reaped = true;
  }

  const pid_t pid;
  std::uint64_t started = 0;
  bool is_reaped = false;
};

/// Makes a folder that stands in for a group without processes.
std::string group_in(const own_folder& here, const std::string& name) {
  REQUIRE(::mkdir(here.file(name).c_str(), 0755) == 0);
  return here.file(name);
}

bool is_there(const std::string& path) { return std::filesystem::exists(path); }

}  // namespace

TEST_CASE("L26 a group is abandoned when its maker has certainly ended") {
  const own_folder here;
  ended_child child;
  child.reap();
  const ended_child zombie;
  const auto ours = start_of(::getpid());
  const std::string of_dead = group_in(here, name_by(child.pid, child.started));
  const std::string of_zombie = group_in(here, name_by(zombie.pid, zombie.started));
  const std::string of_reused = group_in(here, name_by(::getpid(), ours - 1));
  const std::string of_living = group_in(here, name_of_group("0123456789abcdef"));
  const std::string of_unknown_start = group_in(here, name_by(::getpid(), 0));
  const std::string of_another_namespace =
      group_in(here, name_by(child.pid, child.started, pid_namespace() + 1));
  std::vector<std::string> of_others;
  for (const char* const name : {"manyworlds-", "manyworlds-1", "manyworlds-x-1-1-key",
                                 "manyworlds-0-0-0-key", "user.slice"})
    of_others.push_back(group_in(here, name));
  CHECK(end_abandoned_groups(here.path()).empty());
  CHECK_FALSE(is_there(of_dead));
  CHECK_FALSE(is_there(of_zombie));
  CHECK_FALSE(is_there(of_reused));
  CHECK(is_there(of_living));
  CHECK(is_there(of_unknown_start));
  CHECK(is_there(of_another_namespace));
  for (const std::string& each : of_others) CHECK_MESSAGE(is_there(each), each);
}

TEST_CASE("L26 another user's groups are let be") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root gives a folder to another user");
    return;
  }
  const own_folder here;
  ended_child child;
  child.reap();
  const std::string of_another = group_in(here, name_by(child.pid, child.started));
  REQUIRE(::chown(of_another.c_str(), 65534, 65534) == 0);
  CHECK(end_abandoned_groups(here.path()).empty());
  CHECK(is_there(of_another));
}

TEST_CASE("L26 a folder that is not there has no groups") {
  CHECK(end_abandoned_groups("/nothing/there").empty());
}

TEST_CASE("L26 the next start of a program kills what a killed starter has left") {
  std::string why_not;
  if (find_group_folder(why_not).empty()) {
    MESSAGE("skipped: ", why_not);
    return;
  }
  const own_folder here;
  const pid_t starter = ::fork();
  if (starter == 0) {
    ::execl(LAUNCH_STARTER, LAUNCH_STARTER, subject, here.file("pid").c_str(),
            "session-child", here.file("session").c_str(), "stay",
            here.file("first").c_str(), nullptr);
    ::_exit(127);
  }
  const pid_t first = pid_in(here.file("first"));
  const pid_t session = pid_in(here.file("session"));
  ::kill(starter, SIGKILL);
  ::waitpid(starter, nullptr, 0);
  CHECK(ends(first));
  CHECK(lives(session));
  node n;
  run_to_end(n, orders({}));
  CHECK_FALSE(lives(session));
  CHECK(n.log.count("of an earlier start (pid " + std::to_string(starter) + ")") == 1);
  for (const auto& each : std::filesystem::directory_iterator(find_group_folder(why_not)))
    CHECK(each.path().filename().string().find("manyworlds-" + std::to_string(starter) +
                                               "-") == std::string::npos);
}

TEST_SUITE_END();

}  // namespace manyworlds::launch_tests
