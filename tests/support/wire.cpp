// A cable between two network namespaces that is as bad as it is told to be:
//
//   wire [--delay MS] [--jitter MS] [--loss P] [--reorder P] [--seed N] A/NAME B/NAME
//
//   A, B       namespaces as `ip netns` lists them; each gets a tun device NAME
//   --delay    for how long each packet is on its way; --jitter adds up to that much,
//              and keeps the order
//   --loss     the share of packets that are lost, 0 to 1
//   --reorder  the share of packets that are not delayed, and so overtake others
//   --seed     the same seed decides alike of the n-th packet of each direction
//
// It writes `ready`, and reads commands; each is answered by one line:
//
//   cut a|b|both   what that end sends is lost, until `join`
//   join
//   count          `a SENT LOST OVERTOOK b SENT LOST OVERTOOK`, where a is what a sends
//
// It ends with its standard input, and with its parent.
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>

namespace {

using clock_type = std::chrono::steady_clock;
using milliseconds = std::chrono::duration<double, std::milli>;

/// A device's queue in the kernel is about as long; what comes beyond is lost.
constexpr std::size_t most_on_the_way = 1000;
constexpr std::size_t longest_packet = 65536;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "wire: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

[[noreturn]] void refuse(const std::string& what) {
  std::fprintf(stderr,
               "wire: %s\nusage: wire [--delay MS] [--jitter MS] [--loss P] "
               "[--reorder P] [--seed N] A/NAME B/NAME\n",
               what.c_str());
  std::exit(2);
}

struct rules {
  milliseconds delay{0};
  milliseconds jitter{0};
  double loss = 0;
  double reorder = 0;
  std::uint64_t seed = 1;
};

/// What one end sends, on its way to the other.
class direction {
 public:
  direction(const rules& r, std::uint64_t number)
      : rules_(r), random_(r.seed * 2 + number) {}

  /// Decides on a packet that was sent now.
  void take(std::string_view packet, clock_type::time_point now) {
    ++sent_;
    // Three numbers are drawn for each packet, so that its fate hangs on its number
    // alone.
    const double of_loss = draw();
    const double of_order = draw();
    const double of_jitter = draw();
    if (is_cut_ || of_loss < rules_.loss || on_the_way_.size() == most_on_the_way) {
      ++lost_;
      return;
    }
    if (of_order < rules_.reorder) {
      if (!on_the_way_.empty()) ++overtook_;
      on_the_way_.emplace(now, packet);
      return;
    }
    const auto due = now + std::chrono::duration_cast<clock_type::duration>(
                               rules_.delay + of_jitter * rules_.jitter);
    last_ = std::max(last_, due);
    on_the_way_.emplace(last_, packet);
  }

  /// Hands on what has arrived.
  void deliver(int device, clock_type::time_point now) {
    while (!on_the_way_.empty() && on_the_way_.begin()->first <= now) {
      const std::string& packet = on_the_way_.begin()->second;
      // A device that is down or full loses it, as a real one does.
      if (::write(device, packet.data(), packet.size()) < 0) ++lost_;
      on_the_way_.erase(on_the_way_.begin());
    }
  }

  void cut() {
    is_cut_ = true;
    lost_ += on_the_way_.size();
    on_the_way_.clear();
  }
  void join() { is_cut_ = false; }

  [[nodiscard]] bool is_empty() const { return on_the_way_.empty(); }
  [[nodiscard]] clock_type::time_point next() const { return on_the_way_.begin()->first; }

  [[nodiscard]] std::string count() const {
    return std::to_string(sent_) + " " + std::to_string(lost_) + " " +
           std::to_string(overtook_);
  }

 private:
  // The distributions of <random> differ between libraries, and this does not.
  double draw() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }

  const rules rules_;
  std::mt19937_64 random_;
  std::multimap<clock_type::time_point, std::string> on_the_way_;
  clock_type::time_point last_{};
  bool is_cut_ = false;
  std::uint64_t sent_ = 0, lost_ = 0, overtook_ = 0;
};

/// Makes a device in a namespace and returns its descriptor; this process moves there.
int open_end(const std::string& end) {
  const auto slash = end.find('/');
  if (slash == std::string::npos || end.size() - slash - 1 >= IFNAMSIZ)
    refuse("not NAMESPACE/NAME: " + end);
  const std::string path = "/run/netns/" + end.substr(0, slash);
  const int space = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (space < 0 || ::setns(space, CLONE_NEWNET) != 0) fail(path);
  ::close(space);
  const int device = ::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (device < 0) fail("/dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  end.copy(request.ifr_name, IFNAMSIZ - 1, slash + 1);
  if (::ioctl(device, TUNSETIFF, &request) != 0) fail("TUNSETIFF of " + end);
  return device;
}

class cable {
 public:
  cable(const rules& r, std::array<int, 2> devices)
      : devices_(devices), ways_{direction(r, 0), direction(r, 1)} {}

  /// Returns once the standard input has ended.
  void run() {
    while (is_wanted_) {
      std::array<pollfd, 3> ready = {{{devices_[0], POLLIN, 0},
                                      {devices_[1], POLLIN, 0},
                                      {STDIN_FILENO, POLLIN, 0}}};
      const timespec until = time_to_next();
      if (::ppoll(ready.data(), ready.size(), is_idle() ? nullptr : &until, nullptr) <
              0 &&
          errno != EINTR)
        fail("poll");
      for (std::size_t i = 0; i < 2; ++i) {
        if (ready[i].revents != 0) take_from(i);
      }
      for (std::size_t i = 0; i < 2; ++i)
        ways_[i].deliver(devices_[1 - i], clock_type::now());
      if (ready[2].revents != 0) hear();
    }
  }

 private:
  [[nodiscard]] bool is_idle() const {
    return ways_[0].is_empty() && ways_[1].is_empty();
  }

  [[nodiscard]] timespec time_to_next() const {
    auto next = clock_type::time_point::max();
    for (const direction& each : ways_) {
      if (!each.is_empty()) next = std::min(next, each.next());
    }
    const auto left = std::chrono::nanoseconds(
        std::max(next - clock_type::now(), clock_type::duration::zero()));
    return {.tv_sec = left.count() / 1'000'000'000,
            .tv_nsec = left.count() % 1'000'000'000};
  }

  void take_from(std::size_t end) {
    // A bounded number, so that the other end and the commands have their turn.
    for (int i = 0; i < 64; ++i) {
      const ssize_t got = ::read(devices_[end], packet_.data(), packet_.size());
      if (got <= 0) return;
      ways_[end].take({packet_.data(), static_cast<std::size_t>(got)}, clock_type::now());
    }
  }

  void hear() {
    char piece[256];
    const ssize_t got = ::read(STDIN_FILENO, piece, sizeof piece);
    is_wanted_ = got > 0;
    if (!is_wanted_) return;
    heard_.append(piece, static_cast<std::size_t>(got));
    for (auto end = heard_.find('\n'); end != std::string::npos;
         end = heard_.find('\n')) {
      std::printf("%s\n", obey(heard_.substr(0, end)).c_str());
      heard_.erase(0, end + 1);
    }
    if (heard_.size() > sizeof piece) refuse("a command without an end");
  }

  std::string obey(const std::string& command) {
    if (command == "count") return "a " + ways_[0].count() + " b " + ways_[1].count();
    const bool is_both = command == "cut both" || command == "join";
    if (!is_both && command != "cut a" && command != "cut b")
      return "unknown: " + command;
    for (std::size_t i = 0; i < 2; ++i) {
      if (command == "join") {
        ways_[i].join();
      } else if (is_both || command.back() == (i == 0 ? 'a' : 'b')) {
        ways_[i].cut();
      }
    }
    return "done";
  }

  const std::array<int, 2> devices_;
  std::array<direction, 2> ways_;
  std::array<char, longest_packet> packet_;
  std::string heard_;
  bool is_wanted_ = true;
};

double number_of(const std::string& option, const char* text, double most) {
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(value >= 0 && value <= most))
    refuse(option + ": not a number from 0 to " + std::to_string(most) + ": " + text);
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  rules r;
  std::array<std::string, 2> ends;
  std::size_t found = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      if (found == ends.size()) refuse("a third end: " + word);
      ends[found++] = word;
      continue;
    }
    if (++i == argc) refuse(word + " wants a value");
    if (word == "--delay") {
      r.delay = milliseconds(number_of(word, argv[i], 60'000));
    } else if (word == "--jitter") {
      r.jitter = milliseconds(number_of(word, argv[i], 60'000));
    } else if (word == "--loss") {
      r.loss = number_of(word, argv[i], 1);
    } else if (word == "--reorder") {
      r.reorder = number_of(word, argv[i], 1);
    } else if (word == "--seed") {
      r.seed = static_cast<std::uint64_t>(number_of(word, argv[i], 1e15));
    } else {
      refuse("unknown option: " + word);
    }
  }
  if (found != ends.size()) refuse("two ends are wanted");
  cable between(r, {open_end(ends[0]), open_end(ends[1])});
  std::printf("ready\n");
  between.run();
  return 0;
}
