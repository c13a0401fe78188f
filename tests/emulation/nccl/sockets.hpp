// Abstract Unix sockets: they vanish with the process that made them, however it ends.
#pragma once

#include "abort_flag.hpp"

#include <cstddef>
#include <string>
#include <utility>

namespace nccl_emulation {

class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int fd) : fd_(fd) {}
  descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~descriptor() { close(); }

  void close();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

enum class outcome { done, interrupted, dead };

/// A name that nothing else has.
std::string fresh_name(const char* purpose);

descriptor listen_at(const std::string& name);

/// Empty when no socket listens there.
descriptor connect_to(const std::string& name);

/// Waits until `fd` is ready for `events` or hung up; `timeout_ms` < 0 waits without end.
/// `dead` here means that the time is up.
outcome wait_ready(int fd, short events, interrupts cut, int timeout_ms = -1);

/// Sleeps, but for an abort.
outcome sleep_for(int milliseconds, interrupts cut);

outcome read_all(int fd, void* data, std::size_t size, interrupts cut);
outcome write_all(int fd, const void* data, std::size_t size, interrupts cut);

/// Empty when interrupted.
descriptor accept_from(const descriptor& listener, interrupts cut);

/// What every blocked bootstrap of NCCL does when a member is gone: it waits for an
/// abort.
outcome wait_for_abort(interrupts cut);

}  // namespace nccl_emulation
