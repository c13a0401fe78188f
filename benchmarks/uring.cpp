#include <manyworlds/detail/config.hpp>
#include <stdexcept>

#include "questions.hpp"

#if MANYWORLDS_HAS_IO_URING

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "costs.hpp"
#include "raw_uring.hpp"

namespace mwbench {

namespace {

/// Keeps this thread on a CPU where that is asked for.
class on_cpu {
 public:
  on_cpu(bool pin, int nth) {
    if (pin) pinned_.emplace(nth);
  }

 private:
  std::optional<pinned_thread> pinned_;
};

/// A copy of this process that does one thing on a CPU of its own. Ended and reaped at
/// its end.
class forked {
 public:
  forked(bool pin, const std::function<void()>& part) : pid_(::fork()) {
    if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (pid_ > 0) return;
    bound_this_process(limit_s, true);
    try {
      const on_cpu here(pin, 1);
      part();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "the other process: %s\n", e.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  forked(const forked&) = delete;
  forked& operator=(const forked&) = delete;
  ~forked() {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {}
  }

 private:
  static constexpr unsigned limit_s = 120;
  pid_t pid_;
};

/// A connection with the library's own limit on what a socket holds unsent
/// (`src/io/posix_network.cpp`).
std::pair<line, line> connection() {
  constexpr unsigned most_unsent = 512 * 1024;
  std::pair<line, line> ends = line::make();
  for (const line* each : {&ends.first, &ends.second}) {
    ::setsockopt(each->fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most_unsent,
                 sizeof most_unsent);
  }
  return ends;
}

struct stream_figures {
  double gb_s = 0;
  double send_cpu = 0;  ///< seconds a GB
  double receive_cpu = 0;
};

struct stream_case {
  sending send;
  receiving receive;
  std::size_t size;
  samples gb_s;
  samples send_cpu;
  samples receive_cpu;

  void add(const stream_figures& f) {
    gb_s.add(f.gb_s);
    send_cpu.add(f.send_cpu);
    receive_cpu.add(f.receive_cpu);
  }
};

/// Empty if this machine has both ways; else what refuses them.
std::string refusal_of(sending send, receiving receive, std::span<char> memory) {
  const auto [near, far] = connection();
  try {
    const raw_sender sender(far.fd(), send, memory);
    const raw_receiver receiver(near.fd(), receive, waiting::blocking);
    return {};
  } catch (const std::system_error& refusal) {
    return refusal.what();
  }
}

/// One way of sending or receiving is varied at a time, the other is the ring's plain
/// one.
std::vector<stream_case> stream_cases(const std::vector<std::size_t>& sizes) {
  constexpr std::pair<sending, receiving> ways[] = {
      {sending::call, receiving::call},      {sending::tried, receiving::tried},
      {sending::ring, receiving::ring},      {sending::write_fixed, receiving::ring},
      {sending::zero_copy, receiving::ring}, {sending::zero_copy_fixed, receiving::ring},
      {sending::ring, receiving::multishot}, {sending::ring, receiving::bundle},
  };
  std::vector<stream_case> cases;
  for (const std::size_t size : sizes) {
    for (const auto& [send, receive] : ways)
      cases.push_back({send, receive, size, {}, {}, {}});
  }
  return cases;
}

/// Sends the memory in pieces, again and again, then the CPU time that this took.
void send_stream(const line& to, const stream_case& c, std::span<char> memory,
                 int times) {
  raw_sender sender(to.fd(), c.send, memory);
  char go = 0;
  raw_receiver(to.fd(), receiving::call, waiting::blocking).receive_all({&go, 1});
  const usage before = usage::now();
  for (int i = 0; i < times; ++i) {
    for (std::size_t at = 0; at < memory.size(); at += c.size)
      sender.send_all(memory.subspan(at, std::min(c.size, memory.size() - at)));
  }
  sender.settle();
  const double used = usage::now().cpu_seconds - before.cpu_seconds;
  std::span<const char> answer(reinterpret_cast<const char*>(&used), sizeof used);
  raw_sender(to.fd(), sending::call, {}).send_all(answer);
}

/// Receives what that sends and compares the last of it.
stream_figures measure_stream(const stream_case& c, std::span<char> source,
                              std::span<char> destination, int times, bool pin) {
  auto [near, far] = connection();
  const forked other(pin, [&, &to = far] { send_stream(to, c, source, times); });
  far = {};
  const on_cpu here(pin, 0);
  std::memset(destination.data(), 0, destination.size());
  raw_receiver receiver(near.fd(), c.receive, waiting::blocking);
  const usage before = usage::now();
  const std::int64_t begin = now_ns();
  near.signal();
  for (int i = 0; i < times; ++i) {
    for (std::size_t at = 0; at < destination.size(); at += c.size) {
      receiver.receive_all(
          destination.subspan(at, std::min(c.size, destination.size() - at)));
    }
  }
  const double seconds = us_since(begin) / 1e6;
  const double used = usage::now().cpu_seconds - before.cpu_seconds;
  double used_by_other = 0;
  receiver.receive_all({reinterpret_cast<char*>(&used_by_other), sizeof used_by_other});
  if (std::memcmp(source.data(), destination.data(), source.size()) != 0)
    throw std::runtime_error(std::string("other data came by ") + name_of(c.send) +
                             " and " + name_of(c.receive));
  const double gb = static_cast<double>(source.size()) * times / 1e9;
  return {gb / seconds, used_by_other / gb, used / gb};
}

struct ping_case {
  receiving receive;
  waiting wait;
  samples half_us;
};

void echo(const line& to, const ping_case& c, int count) {
  raw_sender sender(to.fd(), sending::call, {});
  raw_receiver receiver(to.fd(), c.receive, c.wait);
  std::uint64_t word = 0;
  const std::span<char> data(reinterpret_cast<char*>(&word), sizeof word);
  for (int i = 0; i < count; ++i) {
    receiver.receive_all(data);
    sender.send_all(data);
  }
}

/// Sends by send(), as the engine does, and waits by the case's way on both sides.
void measure_pings(ping_case& c, int count, bool pin) {
  auto [near, far] = connection();
  const forked other(pin, [&, &to = far] { echo(to, c, count); });
  far = {};
  const on_cpu here(pin, 0);
  raw_sender sender(near.fd(), sending::call, {});
  raw_receiver receiver(near.fd(), c.receive, c.wait);
  std::uint64_t word = 0;
  const std::span<char> data(reinterpret_cast<char*>(&word), sizeof word);
  for (int i = 0; i < count; ++i) {
    const std::int64_t begin = now_ns();
    sender.send_all(data);
    receiver.receive_all(data);
    c.half_us.add(us_since(begin) / 2);
  }
}

void tell_missing(report& out, sending send, receiving receive, const std::string& why) {
  out.row({{"bench", "uring_missing"},
           {"send", name_of(send)},
           {"receive", name_of(receive)},
           {"why", why}});
}

void tell(report& out, const stream_case& c) {
  out.row({{"bench", "uring_stream"},
           {"send", name_of(c.send)},
           {"receive", name_of(c.receive)},
           {"size", c.size},
           {"gb_s", c.gb_s.median()},
           {"spread", c.gb_s.spread()},
           {"send_cpu_s_gb", c.send_cpu.median()},
           {"receive_cpu_s_gb", c.receive_cpu.median()}});
}

void tell(report& out, const ping_case& c) {
  out.row({{"bench", "uring_ping"},
           {"receive", name_of(c.receive)},
           {"waits", c.wait == waiting::blocking ? "in the kernel" : "spinning"},
           {"p50_us", c.half_us.median()},
           {"p99_us", c.half_us.p99()}});
}

}  // namespace

void uring(const common_options& common, const uring_options& options) {
  report out(common.json, "tcp");
  out.machine("io_uring");
  std::vector<char> source(options.memory);
  for (std::size_t i = 0; i < source.size(); ++i)
    source[i] = static_cast<char>(i * 0x9E3779B9 >> 24);
  std::vector<char> destination(options.memory);
  std::vector<stream_case> streams = stream_cases(options.sizes);
  std::vector<ping_case> pings;
  for (const waiting wait : {waiting::blocking, waiting::spinning}) {
    for (const receiving way :
         {receiving::call, receiving::tried, receiving::ring, receiving::multishot})
      pings.push_back({way, wait, {}});
  }
  std::erase_if(streams, [&](const stream_case& c) {
    const std::string why = refusal_of(c.send, c.receive, source);
    if (!why.empty()) tell_missing(out, c.send, c.receive, why);
    return !why.empty();
  });
  std::erase_if(pings, [&](const ping_case& c) {
    return !refusal_of(sending::call, c.receive, source).empty();
  });
  for (int round = 1; round <= options.rounds; ++round) {
    out.progress("round " + std::to_string(round) + " of " +
                 std::to_string(options.rounds));
    for (stream_case& c : streams)
      c.add(measure_stream(c, source, destination, options.times, options.pin));
    for (ping_case& c : pings) measure_pings(c, options.pings, options.pin);
  }
  for (const stream_case& c : streams) tell(out, c);
  for (const ping_case& c : pings) tell(out, c);
  out.end();
}

}  // namespace mwbench

#else

namespace mwbench {

void uring(const common_options&, const uring_options&) {
  throw std::runtime_error("uring: this program was built without liburing");
}

}  // namespace mwbench

#endif
