#include "crew.hpp"

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>

namespace conformance {

namespace {

constexpr int patience_ms = 30'000;
constexpr int line_in_rank = 3;
constexpr const char* rank_variable = "CONFORMANCE_RANK";

std::map<std::string, scenario::body>& scenarios() {
  static std::map<std::string, scenario::body> all;
  return all;
}

bool ready(int fd) {
  pollfd watched{fd, POLLIN, 0};
  return ::poll(&watched, 1, patience_ms) == 1;
}

bool take(int fd, void* data, std::size_t size) {
  auto* to = static_cast<char*>(data);
  while (size > 0) {
    if (!ready(fd)) return false;
    const auto got = ::read(fd, to, size);
    if (got <= 0) return false;
    to += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

int devices_visible() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

void put(int fd, const void* data, std::size_t size) {
  [[maybe_unused]] auto sent = ::send(fd, data, size, MSG_NOSIGNAL);
}

}  // namespace

void rank::say(char word) const { put(line_, &word, 1); }

void rank::hear(char word) const {
  char got = 0;
  REQUIRE(take(line_, &got, 1));
  REQUIRE(got == word);
}

ncclUniqueId rank::shared_id() const {
  if (index_ != 0) return received_id();
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  send_id(id);
  return id;
}

void rank::send_id(const ncclUniqueId& id) const { put(line_, &id, sizeof id); }

ncclUniqueId rank::received_id() const {
  ncclUniqueId id;
  REQUIRE(take(line_, &id, sizeof id));
  return id;
}

scenario::scenario(const char* name, body run) : name_(name) { scenarios()[name] = run; }

void scenario::run(const std::string& name, rank& me) {
  const auto found = scenarios().find(name);
  REQUIRE(found != scenarios().end());
  found->second(me);
}

crew::crew(const scenario& plot, int count, std::vector<std::string> environment)
    : members_(static_cast<std::size_t>(count)) {
  for (int i = 0; i < count; ++i) start(plot, i, environment);
}

crew::~crew() {
  for (auto& m : members_) {
    if (m.status == -1) {
      ::kill(m.pid, SIGKILL);
      wait(m);
    }
    ::close(m.line);
    ::close(m.errors);
  }
}

void crew::start(const scenario& plot, int index, std::vector<std::string> environment) {
  auto& m = members_[static_cast<std::size_t>(index)];
  int line[2];
  int errors[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line) == 0);
  REQUIRE(::pipe2(errors, O_CLOEXEC) == 0);
  char role[128];
  std::snprintf(role, sizeof role, "%s=%s %d %zu", rank_variable, plot.name(), index,
                members_.size());
  environment.push_back(role);
  // On a machine with fewer GPUs than ranks, each rank is a host of its own to NCCL.
  if (devices_visible() < static_cast<int>(members_.size()))
    environment.push_back("NCCL_HOSTID=rank" + std::to_string(index));
  std::vector<char*> variables;
  for (auto& each : environment) variables.push_back(each.data());
  for (char** each = environ; *each != nullptr; ++each) variables.push_back(*each);
  variables.push_back(nullptr);
  char program[] = "/proc/self/exe";
  char filter[] = "--test-case=a rank of a test of several processes";
  char quiet[] = "--minimal";
  char* arguments[] = {program, filter, quiet, nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, line[1], line_in_rank);
  ::posix_spawn_file_actions_adddup2(&actions, errors[1], STDERR_FILENO);
  const int failure =
      ::posix_spawn(&m.pid, program, &actions, nullptr, arguments, variables.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(line[1]);
  ::close(errors[1]);
  m.line = line[0];
  m.errors = errors[0];
  REQUIRE(failure == 0);
}

void crew::share_id() {
  ncclUniqueId id;
  REQUIRE(take(members_.front().line, &id, sizeof id));
  for (std::size_t i = 1; i < members_.size(); ++i) put(members_[i].line, &id, sizeof id);
}

bool crew::said(int index, char word) {
  char got = 0;
  return take(members_[static_cast<std::size_t>(index)].line, &got, 1) && got == word;
}

void crew::tell(int index, char word) {
  put(members_[static_cast<std::size_t>(index)].line, &word, 1);
}

void crew::tell_all(char word) {
  for (const auto& m : members_) put(m.line, &word, 1);
}

void crew::kill(int index) {
  auto& m = members_[static_cast<std::size_t>(index)];
  ::kill(m.pid, SIGKILL);
  wait(m);
}

std::string crew::errors_of(const member& m) {
  pollfd watched{m.errors, POLLIN, 0};
  std::string text(16'384, '\0');
  const auto got =
      ::poll(&watched, 1, 0) == 1 ? ::read(m.errors, text.data(), text.size()) : 0;
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

bool crew::wait(member& m) {
  const int process = static_cast<int>(::syscall(SYS_pidfd_open, m.pid, 0));
  const bool ended = ready(process);
  ::close(process);
  return ended && ::waitpid(m.pid, &m.status, 0) == m.pid;
}

bool crew::ended_well(int index) {
  auto& m = members_[static_cast<std::size_t>(index)];
  const bool well = wait(m) && WIFEXITED(m.status) && WEXITSTATUS(m.status) == 0;
  if (!well) MESSAGE("rank ", index, " ended with ", m.status, ": ", errors_of(m));
  return well;
}

bool crew::all_ended_well() {
  bool all = true;
  for (int i = 0; i < static_cast<int>(members_.size()); ++i) all = ended_well(i) && all;
  return all;
}

bool crew::aborted_saying(int index, const std::string& text) {
  auto& m = members_[static_cast<std::size_t>(index)];
  if (!wait(m) || !WIFSIGNALED(m.status) || WTERMSIG(m.status) != SIGABRT) return false;
  return errors_of(m).find(text) != std::string::npos;
}

TEST_CASE("a rank of a test of several processes" *
          doctest::skip(std::getenv(rank_variable) == nullptr)) {
  char name[64];
  int index = 0;
  int count = 0;
  REQUIRE(std::sscanf(std::getenv(rank_variable), "%63s %d %d", name, &index, &count) ==
          3);
  // An abort is for the test to see, not for doctest to report.
  ::signal(SIGABRT, SIG_DFL);
  rank me{index, count, line_in_rank};
  scenario::run(name, me);
}

}  // namespace conformance
