#include "abort_flag.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace nccl_emulation {

abort_flag::abort_flag() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

abort_flag::~abort_flag() { ::close(descriptor_); }

void abort_flag::raise() {
  std::lock_guard lock{guard};
  // Release: pairs with the acquire in raised(). Its reader then sees why the flag was
  // raised.
  raised_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  [[maybe_unused]] auto written = ::write(descriptor_, &one, sizeof one);
  changed.notify_all();
}

void abort_flag::lower() {
  std::lock_guard lock{guard};
  raised_.store(false, std::memory_order_release);
  std::uint64_t count = 0;
  [[maybe_unused]] auto read = ::read(descriptor_, &count, sizeof count);
}

}  // namespace nccl_emulation
