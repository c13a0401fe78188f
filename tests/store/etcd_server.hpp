// An etcd of a test's own: one member on free ports of loopback, with its data in memory.
#pragma once

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace manyworlds_tests {

/// Returns whether there is a program of this name, as a shell finds it.
inline bool is_program_here(const char* name) {
  const char* const path = std::getenv("PATH");
  std::string_view rest = path ? path : "";
  while (!rest.empty()) {
    const std::string folder(rest.substr(0, rest.find(':')));
    if (::access((folder + "/" + name).c_str(), X_OK) == 0) return true;
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
  }
  return false;
}

/// Says once that etcd is missing; true if it is.
inline bool etcd_is_missing_here() {
  if (is_program_here("etcd")) return false;
  MESSAGE("skipped: etcd is not installed (Debian: apt-get install etcd-server)");
  return true;
}

/// Returns a port of loopback that is free now.
inline int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  const bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&at), size) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0;
  ::close(fd);
  REQUIRE(bound);
  return ntohs(at.sin_port);
}

/// Starts a program with its output in a file; returns its pid. It ends with the test's
/// program, where util-linux is installed.
inline pid_t start_program(std::vector<std::string> arguments,
                           const std::filesystem::path& output) {
  if (is_program_here("setpriv"))
    arguments.insert(arguments.begin(), {"setpriv", "--pdeathsig", "KILL", "--"});
  std::vector<char*> pointers;
  for (std::string& a : arguments) pointers.push_back(a.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = 0;
  const int error =
      ::posix_spawnp(&pid, pointers[0], &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  REQUIRE(error == 0);
  return pid;
}

/// Runs from its construction, ready to answer, to its destruction.
class etcd_server {
 public:
  explicit etcd_server(std::vector<std::string> more = {}, bool is_secure = false)
      : more_(std::move(more)), scheme_(is_secure ? "https" : "http") {
    std::filesystem::create_directories(folder_);
    start();
  }
  etcd_server(const etcd_server&) = delete;
  etcd_server& operator=(const etcd_server&) = delete;
  ~etcd_server() {
    kill();
    std::filesystem::remove_all(folder_);
  }

  [[nodiscard]] std::string endpoint() const {
    return scheme_ + "://127.0.0.1:" + std::to_string(port_);
  }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  /// Ends it as a crash does. Its data stays.
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::kill(pid_, SIGCONT);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  /// Starts it again on the same port, with its data.
  void start() {
    for (int tries = 0; tries < 5; ++tries) {
      if (port_ == 0) port_ = free_port();
      pid_ = start_program(command(), folder_ / "log");
      if (answers()) return;
      kill();
      if (!has_started_) port_ = 0;
    }
    std::ifstream log(folder_ / "log");
    const std::string said(std::istreambuf_iterator<char>(log), {});
    FAIL("etcd does not start: ", said);
  }
  /// Returns when all its threads have stopped: the signal alone only begins that.
  void stop() {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    REQUIRE(::waitpid(pid_, &status, WUNTRACED) == pid_);
  }
  void go_on() { ::kill(pid_, SIGCONT); }

 private:
  [[nodiscard]] std::vector<std::string> command() const {
    const std::string peers = "http://127.0.0.1:" + std::to_string(free_port());
    std::vector<std::string> all = {"etcd",
                                    "--name=one",
                                    "--data-dir=" + (folder_ / "data").string(),
                                    "--listen-client-urls=" + endpoint(),
                                    "--advertise-client-urls=" + endpoint(),
                                    "--listen-peer-urls=" + peers,
                                    "--initial-advertise-peer-urls=" + peers,
                                    "--initial-cluster=one=" + peers,
                                    "--max-request-bytes=33554432",
                                    "--logger=zap",
                                    "--log-level=error"};
    all.insert(all.end(), more_.begin(), more_.end());
    return all;
  }
  /// Waits until it accepts connections, which it does once it has a leader.
  bool answers() {
    using clock = std::chrono::steady_clock;
    const clock::time_point end = clock::now() + std::chrono::seconds(15);
    while (clock::now() < end) {
      if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
        pid_ = 0;
        return false;
      }
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in at{};
      at.sin_family = AF_INET;
      at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      at.sin_port = htons(static_cast<std::uint16_t>(port_));
      const bool open = ::connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
      ::close(fd);
      if (open) {
        has_started_ = true;
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  static std::filesystem::path new_folder() {
    static int number = 0;
    const bool has_memory = std::filesystem::is_directory("/dev/shm");
    const std::filesystem::path base =
        has_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    return base /
           ("mw-etcd-" + std::to_string(::getpid()) + "-" + std::to_string(number++));
  }

  const std::vector<std::string> more_;
  const std::string scheme_;
  const std::filesystem::path folder_ = new_folder();
  int port_ = 0;
  pid_t pid_ = 0;
  bool has_started_ = false;
};

/// An etcd that all tests of this program share, each under a prefix of its own. It is
/// started by the first that asks for it.
class shared_etcd_server {
 public:
  [[nodiscard]] static etcd_server& get() {
    static etcd_server one;
    is_new_ = is_new_ || !std::exchange(is_started_, true);
    return one;
  }
  /// Returns whether it was started since this was asked last: it is no leak of the test.
  [[nodiscard]] static bool take_is_new() { return std::exchange(is_new_, false); }

 private:
  static inline bool is_started_ = false;
  static inline bool is_new_ = false;
};
inline etcd_server& shared_etcd() { return shared_etcd_server::get(); }
inline std::string new_etcd_prefix() {
  static int number = 0;
  return "test " + std::to_string(number++) + "/";
}

}  // namespace manyworlds_tests
