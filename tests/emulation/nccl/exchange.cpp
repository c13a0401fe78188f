#include "exchange.hpp"

#include "../cuda/stream_hooks.h"
#include "settings.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>

namespace nccl_emulation {

namespace {

using clock = std::chrono::steady_clock;

struct header {
  signature about;
  std::int32_t needs_consent = 0;
  std::int32_t padding = 0;
};

enum class progress { waits, moved, dead };

// One step of moving bytes; `done` counts them.
template <class Move>
progress step(std::size_t& done, std::size_t size, Move move) {
  while (done < size) {
    const auto moved = move(done, size - done);
    if (moved > 0)
      done += static_cast<std::size_t>(moved);
    else if (moved < 0 && errno == EINTR)
      continue;
    else
      return moved < 0 && errno == EAGAIN ? progress::waits : progress::dead;
  }
  return progress::moved;
}

progress put(int fd, const void* data, std::size_t size, std::size_t& done) {
  return step(done, size, [&](std::size_t at, std::size_t left) {
    return ::send(fd, static_cast<const char*>(data) + at, left,
                  MSG_DONTWAIT | MSG_NOSIGNAL);
  });
}

progress take(int fd, void* data, std::size_t size, std::size_t& done) {
  return step(done, size, [&](std::size_t at, std::size_t left) {
    return ::recv(fd, static_cast<char*>(data) + at, left, MSG_DONTWAIT);
  });
}

/// One direction to one peer: what is to move there, the front of it half moved.
struct line {
  int fd = -1;
  bool sending = false;
  std::deque<std::size_t> queue;
  int stage = 0;
  std::size_t done = 0;
  header front{};
  char consent = 1;
  bool broken = false;
  bool wants_out = false;
};

class mover {
 public:
  mover(communicator& c, std::vector<outgoing>& sends, std::vector<incoming>& receives)
      : c_(c),
        sends_(sends),
        receives_(receives),
        out_(c.lines.size()),
        in_(c.lines.size()) {
    for (std::size_t i = 0; i < sends.size(); ++i) add(out_, sends[i].peer, i, true);
    for (std::size_t i = 0; i < receives.size(); ++i)
      add(in_, receives[i].peer, i, false);
  }

  bool run() {
    for (;;) {
      cudaEmulatedAwaitSlice(c_.device);
      for (auto& l : out_) advance(l);
      for (auto& l : in_) advance(l);
      if (c_.flag->raised()) return false;
      if (left_ == 0) return true;
      wait();
    }
  }

 private:
  void add(std::vector<line>& lines, int peer, std::size_t index, bool sending) {
    auto& l = lines[static_cast<std::size_t>(peer)];
    auto& between = c_.lines[static_cast<std::size_t>(peer)];
    l.fd = sending ? between.out.get() : between.in.get();
    l.sending = sending;
    l.queue.push_back(index);
    ++left_;
  }

  void advance(line& l) {
    while (!l.queue.empty() && !l.broken) {
      const auto result = l.sending ? advance_send(l) : advance_receive(l);
      if (result == progress::waits) return;
      if (result == progress::dead) return lose(l);
      l.queue.pop_front();
      l.stage = 0;
      l.done = 0;
      --left_;
    }
  }

  // The stages: header out, consent in if needed, data out.
  progress advance_send(line& l) {
    const auto& message = sends_[l.queue.front()];
    if (l.stage == 0 && l.done == 0) {
      l.front = {};
      l.front.about = message.about;
      l.front.needs_consent =
          !(chosen().eager && message.about.bytes <= settings::eager_limit);
    }
    auto now = progress::moved;
    if (l.stage == 0) {
      l.wants_out = true;
      now = put(l.fd, &l.front, sizeof l.front, l.done);
      if (now == progress::moved) next(l, l.front.needs_consent ? 1 : 2);
    }
    if (l.stage == 1) {
      l.wants_out = false;
      now = take(l.fd, &l.consent, 1, l.done);
      if (now == progress::moved) next(l, 2);
    }
    if (l.stage == 2) {
      l.wants_out = true;
      now = put(l.fd, message.data, message.about.bytes, l.done);
    }
    return now;
  }

  // The stages: header in, consent out if needed, data in.
  progress advance_receive(line& l) {
    auto& message = receives_[l.queue.front()];
    auto now = progress::moved;
    if (l.stage == 0) {
      l.wants_out = false;
      now = take(l.fd, &l.front, sizeof l.front, l.done);
      if (now == progress::moved) {
        // A disagreement is not an error in NCCL: both sides wait without end.
        if (!(l.front.about == message.about)) l.broken = true;
        next(l, l.front.needs_consent != 0 ? 1 : 2);
      }
      if (l.broken) return progress::waits;
    }
    if (l.stage == 1) {
      l.wants_out = true;
      now = put(l.fd, &l.consent, 1, l.done);
      if (now == progress::moved) next(l, 2);
    }
    if (l.stage == 2) {
      l.wants_out = false;
      now = take(l.fd, message.data, message.about.bytes, l.done);
      message.complete = now == progress::moved;
    }
    return now;
  }

  static void next(line& l, int stage) {
    l.stage = stage;
    l.done = 0;
  }

  void lose(line& l) {
    l.broken = true;
    if (chosen().death != death_mode::socket || lost_) return;
    lost_ = true;
    tell_at_ = clock::now() + std::chrono::milliseconds{chosen().error_delay_ms};
  }

  void wait() {
    watched_.clear();
    watched_.push_back({c_.flag->descriptor(), POLLIN, 0});
    for (auto* lines : {&out_, &in_}) {
      for (const auto& l : *lines) {
        if (l.queue.empty() || l.broken) continue;
        watched_.push_back({l.fd, static_cast<short>(l.wants_out ? POLLOUT : POLLIN), 0});
      }
    }
    ::poll(watched_.data(), watched_.size(), patience());
  }

  int patience() {
    if (!lost_ || told_) return -1;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(tell_at_ - clock::now());
    if (left.count() > 0) return static_cast<int>(left.count());
    told_ = true;
    c_.proxy_result.store(ncclRemoteError);
    return -1;
  }

  communicator& c_;
  std::vector<outgoing>& sends_;
  std::vector<incoming>& receives_;
  std::vector<line> out_;
  std::vector<line> in_;
  std::vector<pollfd> watched_;
  std::size_t left_ = 0;
  bool lost_ = false;
  bool told_ = false;
  clock::time_point tell_at_;
};

}  // namespace

bool exchange(communicator& c, std::vector<outgoing>& sends,
              std::vector<incoming>& receives) {
  return mover{c, sends, receives}.run();
}

}  // namespace nccl_emulation
