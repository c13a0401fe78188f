// Real processes for tests: members that obey orders (member.cpp), and a leader in the
// test's own process.
#pragma once

#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

#include "manyworlds/manyworlds.hpp"
#include "support/refused_here.hpp"

namespace manyworlds::process_tests {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

/// The engines of this machine; every case runs on each.
inline const std::vector<engine_kind>& engines() {
  static const std::vector<engine_kind> all = [] {
    std::vector<engine_kind> found{engine_kind::epoll};
    if (!testing::io_uring_is_refused_here()) found.push_back(engine_kind::io_uring);
    return found;
  }();
  return all;
}
inline std::string name_of(engine_kind e) {
  return e == engine_kind::io_uring ? "io_uring"
         : e == engine_kind::epoll  ? "epoll"
                                    : "automatic";
}

/// A child process with one socket as its standard input and output. Killed when
/// destroyed.
class process {
 public:
  explicit process(std::vector<std::string> arguments) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      throw std::runtime_error("socketpair");
    }
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    arguments.insert(arguments.begin(), MEMBER_PROGRAM);
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    const int error =
        ::posix_spawn(&pid_, MEMBER_PROGRAM, &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    channel_ = ends[0];
    if (error != 0) {
      ::close(channel_);
      throw std::runtime_error("cannot start " MEMBER_PROGRAM);
    }
  }
  process(process&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)),
        channel_(std::exchange(other.channel_, -1)),
        partial_(std::move(other.partial_)),
        lines_(std::move(other.lines_)) {}
  process& operator=(process&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(channel_, other.channel_);
    std::swap(partial_, other.partial_);
    std::swap(lines_, other.lines_);
    return *this;
  }
  ~process() {
    if (pid_ > 0) kill();
    if (channel_ >= 0) ::close(channel_);
  }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  void order(const std::string& line) {
    const std::string whole = line + "\n";
    // One that was killed takes no orders, which is its observer's business.
    (void)!::send(channel_, whole.data(), whole.size(), MSG_NOSIGNAL);
  }

  /// The first line that begins so; the others are kept. Throws after `limit`, or when
  /// the process ends.
  std::string expect(const std::string& beginning, duration limit = 20s) {
    return expect_one_of({beginning}, limit);
  }
  /// The same with one of several beginnings.
  std::string expect_one_of(const std::vector<std::string>& beginnings,
                            duration limit = 20s) {
    const auto until = clock::now() + limit;
    for (;;) {
      for (auto line = lines_.begin(); line != lines_.end(); ++line) {
        const bool fits = std::any_of(beginnings.begin(), beginnings.end(),
                                      [&](const auto& b) { return begins(*line, b); });
        if (!fits) continue;
        std::string found = std::move(*line);
        lines_.erase(line);
        return found;
      }
      if (!read_more(until)) {
        std::string told = "expected \"" + beginnings.front() + "\" of process " +
                           std::to_string(pid_) + ", which said:";
        for (const auto& line : lines_) told += "\n  " + line;
        throw std::runtime_error(told);
      }
    }
  }
  /// Whether it has said such a line by now.
  bool has_said(const std::string& beginning) {
    while (read_more(clock::now())) continue;
    for (const auto& line : lines_) {
      if (begins(line, beginning)) return true;
    }
    return false;
  }

  /// Returns when the process is gone.
  void kill() {
    send_kill();
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
  }
  /// Only the signal.
  void send_kill() const noexcept { ::kill(pid_, SIGKILL); }
  /// Returns when it has stopped.
  void stop() const {
    ::kill(pid_, SIGSTOP);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT);
  }
  void go_on() const noexcept { ::kill(pid_, SIGCONT); }

  /// Ends its input, which ends a store, or orders it to quit; gives the exit status.
  int end(duration limit = 20s) {
    order("quit");
    ::shutdown(channel_, SHUT_WR);
    const auto until = clock::now() + limit;
    while (read_more(until)) continue;
    if (clock::now() >= until) {
      kill();
      return -1;
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  /// By whole words: "parked idle1" is not the beginning of "parked idle11".
  static bool begins(const std::string& line, const std::string& with) {
    return (line + ' ').starts_with(with.ends_with(' ') ? with : with + ' ');
  }

  /// False at `until`, or at the end of what the process says.
  bool read_more(clock::time_point until) {
    pollfd wanted{channel_, POLLIN, 0};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - clock::now()).count();
    if (::poll(&wanted, 1, static_cast<int>(std::max<long>(left, 0))) <= 0) return false;
    char buffer[4096];
    const ssize_t got = ::read(channel_, buffer, sizeof buffer);
    if (got <= 0) return false;
    partial_.append(buffer, static_cast<std::size_t>(got));
    for (std::size_t end; (end = partial_.find('\n')) != std::string::npos;) {
      lines_.push_back(partial_.substr(0, end));
      partial_.erase(0, end + 1);
    }
    return true;
  }

  pid_t pid_ = -1;
  int channel_ = -1;
  std::string partial_;
  std::deque<std::string> lines_;
};

/// A store in a process of its own, and how members find it.
class site {
 public:
  explicit site(engine_kind e) : engine(e), store({"serve"}) {
    store_address = store.expect("listening ").substr(std::strlen("listening "));
  }

  [[nodiscard]] process member(std::vector<std::string> settings = {}) const {
    settings.push_back("engine=" + name_of(engine));
    settings.push_back("store=" + store_address);
    return process(std::move(settings));
  }
  /// A member of one world of two, which it has been told to join as rank 1.
  [[nodiscard]] process worker(const std::string& world,
                               std::vector<std::string> settings = {}) const {
    process p = member(std::move(settings));
    p.order("world " + world + " 1 2");
    return p;
  }

  engine_kind engine;
  process store;
  std::string store_address;
};

/// The member in the test's own process. Tasks run on its reactor's thread, the test on
/// the main one.
class leader {
 public:
  explicit leader(const site& s, duration heartbeat = 200ms, log_sink* log = nullptr,
                  bool reads_peers = true)
      : rt(options(s.engine, heartbeat, log, reads_peers)), store(rt, s.store_address) {}

  /// Without a log only errors are shown.
  static runtime_options options(engine_kind e, duration heartbeat, log_sink* log,
                                 bool reads_peers) {
    runtime_options o;
    o.engine = e;
    o.heartbeat = heartbeat;
    o.read_peers = reads_peers;
    o.log = log;
    o.log_from = log ? log_level::debug : log_level::error;
    return o;
  }

  template <class T>
  T finish(started<T> s, duration limit = 30s) {
    if (!s.wait_for(limit)) FAIL("a task did not end in time\n" << rt.dump());
    return s.get();
  }
  /// Runs a task of the reactor to its end, which must come in time.
  template <class T>
  T run(task<T> t, duration limit = 30s) {
    return finish(rt.start(std::move(t)), limit);
  }

  [[nodiscard]] world describe(const std::string& name, rank_t rank = 0,
                               rank_t size = 2) {
    world_options o = patience;
    o.name = name;
    o.rank = rank;
    o.size = size;
    return world(rt, store, o);
  }
  [[nodiscard]] world form(const std::string& name, rank_t rank = 0, rank_t size = 2) {
    world w = describe(name, rank, size);
    auto formed = [](world& w) -> task<void> { co_await w; };
    run(formed(w));
    return w;
  }
  [[nodiscard]] failure broken(const world& w, duration limit = 30s) {
    return run(w.broken(), limit);
  }

  world_options patience{.form = 20s};
  runtime rt;
  tcp_store store;
};

/// What a receiver of numbered messages has seen; read it when its task has ended.
struct received {
  std::uint64_t messages = 0;
  bool in_order = true;
  failure error;
  clock::time_point failed_at{};
  duration longest_gap{0};
};

/// Takes numbered messages of `bytes` from `peer` until something fails, or `until` says
/// so.
template <class Until>
task<void> take_stream(world& w, rank_t peer, std::size_t bytes, received& seen,
                       Until until) {
  std::vector<std::uint64_t> message(bytes / 8);
  auto last = clock::now();
  try {
    while (!until()) {
      const message_info info = co_await w.recv(message, from(peer));
      const auto now = clock::now();
      seen.longest_gap = std::max<duration>(seen.longest_gap, now - last);
      last = now;
      const std::uint64_t n = seen.messages++;
      seen.in_order &=
          info.user.value() == n && message.front() == n && message.back() == n;
    }
  } catch (const world_error& e) {
    seen.error = e.failure();
    seen.failed_at = clock::now();
  }
}

/// Numbered messages there and back, with a member that echoes them.
inline task<duration> ping(world& w, rank_t peer, std::uint64_t times,
                           std::size_t bytes = 64) {
  std::vector<std::uint64_t> out(bytes / 8);
  std::vector<std::uint64_t> in(bytes / 8);
  duration longest{0};
  for (std::uint64_t n = 0; n < times; ++n) {
    const auto begun = clock::now();
    out.front() = out.back() = n;
    co_await w.send(out, to(peer), {}, user_word(n));
    const message_info info = co_await w.recv(in, from(peer));
    if (info.user.value() != n || in != out) throw std::runtime_error("a wrong echo");
    longest = std::max<duration>(longest, clock::now() - begun);
  }
  co_return longest;
}

inline task<failure> failure_of_receiving(world& w, rank_t peer, std::uint64_t on = 0) {
  std::uint64_t word = 0;
  const auto got = co_await outcome(w.recv(std::span(&word, 1), from(peer), lane(on)));
  co_return got.error();
}

}  // namespace manyworlds::process_tests
