// mwstat PID: prints what the manyworlds runtimes of a process wait for.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

/// A server waits 200 ms for stuck reactors, and answers earlier clients first.
constexpr int patience_ms = 5000;

class descriptor {
 public:
  explicit descriptor(int fd) noexcept : fd_(fd) {}
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

/// Returns the dump servers of a process: abstract sockets "@manyworlds-PID-N" that
/// listen.
std::vector<std::string> servers_of(long pid) {
  std::ifstream table("/proc/net/unix");
  if (!table) fail("/proc/net/unix");
  const std::string prefix = "@manyworlds-" + std::to_string(pid) + "-";
  std::vector<std::string> found;
  for (std::string line; std::getline(table, line);) {
    const auto at = line.find(prefix);
    if (at != line.npos) found.push_back(line.substr(at + 1));
  }
  // Connections that are being answered bear the server's name too.
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

/// Returns the process that has started another one; 0 if that is not known.
long parent_of(long pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  // Its name, which may be anything, ends with the last parenthesis.
  std::istringstream rest(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string state;
  long parent = 0;
  rest >> state >> parent;
  return parent;
}

/// Returns those of the children of a process: mwrun's agent is a child of the process
/// that its user has started.
std::vector<std::string> servers_of_children(long pid) {
  std::ifstream table("/proc/net/unix");
  const std::string prefix = "@manyworlds-";
  std::set<long> children;
  for (std::string line; std::getline(table, line);) {
    const auto at = line.find(prefix);
    if (at == line.npos) continue;
    const long each = std::atol(line.c_str() + at + prefix.size());
    if (each > 0 && parent_of(each) == pid) children.insert(each);
  }
  std::vector<std::string> found;
  for (const long each : children) {
    for (std::string& server : servers_of(each)) found.push_back(std::move(server));
  }
  return found;
}

std::string read_answer(int server) {
  std::string answer;
  for (;;) {
    pollfd waited{server, POLLIN, 0};
    const int ready = ::poll(&waited, 1, patience_ms);
    if (ready == 0)
      throw std::runtime_error(
          "the dump server does not answer: is the process stopped?");
    if (ready < 0 && errno != EINTR) fail("poll");
    if (ready < 0) continue;
    char part[65536];
    const ssize_t got = ::recv(server, part, sizeof part, 0);
    if (got < 0) fail("recv");
    if (got == 0) return answer;
    answer.append(part, static_cast<std::size_t>(got));
  }
}

std::string ask(const std::string& name, bool as_json) {
  const descriptor server(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (server.get() < 0) fail("socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.sun_path)
    throw std::runtime_error("the name of the dump server is too long");
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  // A full queue of a stopped process would block without end.
  const timeval limit{patience_ms / 1000, 0};
  ::setsockopt(server.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::connect(server.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    fail("connect");
  }
  const std::string request = as_json ? "json\n" : "text\n";
  if (::send(server.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0)
    fail("send");
  std::string answer = read_answer(server.get());
  if (answer.empty()) {
    throw std::runtime_error(
        "the dump server refuses: only the user who runs the process, or root, may ask");
  }
  return answer;
}

std::string collect(long pid, bool as_json) {
  auto servers = servers_of(pid);
  if (servers.empty()) servers = servers_of_children(pid);
  if (servers.empty()) {
    const bool lives = ::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM;
    throw std::runtime_error(
        lives ? "pid " + std::to_string(pid) +
                    " serves no dumps: call runtime::serve_dumps() there"
              : "there is no process " + std::to_string(pid));
  }
  std::string text;
  nlohmann::json all = nlohmann::json::array();
  for (const std::string& name : servers) {
    try {
      const std::string answer = ask(name, as_json);
      if (as_json) {
        all.push_back(nlohmann::json::parse(answer));
      } else {
        text += (text.empty() ? "" : "\n") + answer;
      }
    } catch (const std::exception& e) {
      throw std::runtime_error(name + ": " + e.what());
    }
  }
  return as_json ? all.dump() + "\n" : text;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "What the manyworlds runtimes of a process wait for: links, worlds, operations."};
  long pid = 0;
  bool as_json = false;
  double watch = 0;
  app.add_option("pid", pid, "the process to ask; it has called runtime::serve_dumps()")
      ->required()
      ->check(CLI::Range(1, 4194304));
  app.add_flag("--json", as_json, "one line: a JSON array with an object per runtime");
  app.add_option("--watch", watch,
                 "ask again after this many seconds, until the process ends")
      ->check(CLI::Range(0.1, 86400.0));
  CLI11_PARSE(app, argc, argv);

  try {
    for (;;) {
      std::cout << collect(pid, as_json) << std::flush;
      if (watch <= 0 || !std::cout) return 0;
      if (!as_json) std::cout << '\n';
      std::this_thread::sleep_for(std::chrono::duration<double>(watch));
    }
  } catch (const std::exception& e) {
    std::cerr << "mwstat: " << e.what() << '\n';
    return 1;
  }
}
