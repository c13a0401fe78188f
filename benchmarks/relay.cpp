#include "relay.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <system_error>
#include <tuple>

namespace mwbench {

namespace {

/// Returns false at the end of the stream.
bool move_some(const line& from, const line& to) {
  char bytes[16 << 10];
  const ssize_t got = ::recv(from.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (got <= 0) return got < 0 && errno == EAGAIN;
  // This blocks only until the other process has read; little data passes here.
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t more =
        ::send(to.fd(), bytes + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
    if (more <= 0) return false;
    sent += more;
  }
  return true;
}

}  // namespace

relay::relay(doorway door, manyworlds::socket_address target, int cut)
    : door_(std::move(door)), target_(target), cut_(cut) {
  std::tie(end_here_, end_there_) = line::make();
  thread_ = std::thread([this] {
    try {
      run();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "mwbench: a relay failed: %s\n", e.what());
    }
  });
}

relay::~relay() {
  end_here_.signal();
  thread_.join();
}

void relay::run() {
  for (;;) {
    std::vector<pollfd> asked{
        {cut_, POLLIN, 0}, {end_there_.fd(), POLLIN, 0}, {door_.fd(), POLLIN, 0}};
    for (const auto& [near, far] : connections_) {
      asked.push_back({near.fd(), POLLIN, 0});
      asked.push_back({far.fd(), POLLIN, 0});
    }
    if (::poll(asked.data(), asked.size(), -1) < 0) continue;
    // Open connections stay open, and unread.
    if (asked[0].revents != 0 || asked[1].revents != 0) return;
    std::vector<std::pair<line, line>> left;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      if (carry(connections_[i], asked[3 + 2 * i].revents, asked[4 + 2 * i].revents))
        left.push_back(std::move(connections_[i]));
    }
    connections_ = std::move(left);
    if (asked[2].revents != 0) connect();
  }
}

/// Where nothing listens there, the connection ends here.
void relay::connect() {
  line near = door_.accept();
  try {
    connections_.emplace_back(std::move(near), line::to(target_));
  } catch (const std::system_error&) {}
}

bool relay::carry(std::pair<line, line>& both, short near_events, short far_events) {
  const bool near_lives = near_events == 0 || move_some(both.first, both.second);
  const bool far_lives = far_events == 0 || move_some(both.second, both.first);
  return near_lives && far_lives;
}

}  // namespace mwbench
