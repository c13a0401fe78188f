#include "slices.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <thread>
#include <utility>

#include "machine.hpp"
#include "settings.hpp"

namespace emulated {
namespace {

using clock = std::chrono::steady_clock;

std::chrono::nanoseconds length() { return std::chrono::milliseconds{chosen().slice_ms}; }

// An abstract name. Those who share devices are of one session: the ranks of one test.
socklen_t name_of(int device, int place, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const int size = std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1,
                                 "emulated-cuda/%d/%d/%d", ::getsid(0), device, place);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1) +
         static_cast<socklen_t>(size);
}

int new_socket() { return ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

bool is_taken(int device, int place) {
  sockaddr_un address;
  const auto size = name_of(device, place, address);
  const int asking = new_socket();
  const bool taken =
      ::connect(asking, reinterpret_cast<const sockaddr*>(&address), size) == 0;
  ::close(asking);
  return taken;
}

slices& of_device(int device) { return machine::here().on(device).turns; }

}  // namespace

slices::kernel::kernel(int device)
    : of_(chosen().slice_ms > 0 ? &of_device(device) : nullptr) {
  if (of_ == nullptr) return;
  of_->begin();
  of_->await_turn();
}

slices::kernel::~kernel() {
  if (of_ != nullptr) of_->end();
}

void slices::begin() {
  std::lock_guard hold(mutex_);
  if (kernels_++ > 0) return;
  seen_ = -1;
  for (int place = 0; place < most_processes; ++place) {
    sockaddr_un address;
    const auto size = name_of(device_, place, address);
    const int seat = new_socket();
    if (::bind(seat, reinterpret_cast<const sockaddr*>(&address), size) == 0) {
      seat_ = seat;
      place_ = place;
      return;
    }
    ::close(seat);
  }
}

void slices::end() {
  std::lock_guard hold(mutex_);
  if (--kernels_ > 0 || seat_ < 0) return;
  ::close(std::exchange(seat_, -1));
}

// By the clock, which all processes share: the slices go round those that have a seat.
bool slices::is_mine(long long slice) {
  std::lock_guard hold(mutex_);
  if (seat_ < 0) return true;
  if (std::exchange(seen_, slice) == slice) return was_mine_;
  int before = 0;
  int all = 0;
  for (int place = 0; place < most_processes; ++place) {
    if (place != place_ && !is_taken(device_, place)) continue;
    before += place < place_;
    ++all;
  }
  was_mine_ = slice % all == before;
  return was_mine_;
}

void slices::await_turn() {
  if (chosen().slice_ms <= 0) return;
  for (;;) {
    const auto slice = clock::now().time_since_epoch() / length();
    if (is_mine(slice)) return;
    std::this_thread::sleep_until(clock::time_point{(slice + 1) * length()});
  }
}

}  // namespace emulated
