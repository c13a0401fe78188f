#include "nccl/stuck_call.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string_view>

namespace manyworlds::inline v0::detail::nccl {

namespace {

/// CPU time of another thread of this process. Its clock has the number that the kernel
/// makes of the thread's (include/linux/posix-timers.h, make_thread_cpuclock), as
/// pthread_getcpuclockid gives it, which wants a pthread_t that has not ended.
[[nodiscard]] std::optional<duration> cpu_time(pid_t thread) noexcept {
  constexpr clockid_t scheduled = 2;
  constexpr clockid_t of_one_thread = 4;
  const auto clock =
      static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) |
                             static_cast<unsigned>(scheduled | of_one_thread));
  timespec used{};
  if (::clock_gettime(clock, &used) != 0) return std::nullopt;
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

/// Runs, or would if it had a CPU (proc_pid_stat(5), field 3).
[[nodiscard]] bool is_runnable(pid_t thread) noexcept {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/task/%d/stat",
                static_cast<int>(thread));
  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  // "4711 (its name, which may have anything in it) R ..."
  std::array<char, 128> text{};
  const ssize_t size = ::read(file, text.data(), text.size());
  ::close(file);
  if (size <= 0) return false;
  const std::string_view all(text.data(), static_cast<std::size_t>(size));
  const std::size_t name_end = all.rfind(')');
  return name_end != all.npos && all.substr(name_end).starts_with(") R");
}

}  // namespace

stuck_call::stuck_call(pid_t thread) noexcept
    : thread_(thread), seen_(std::chrono::steady_clock::now()), used_(cpu_time(thread)) {}

duration stuck_call::lasted() noexcept {
  const time_point now = std::chrono::steady_clock::now();
  const duration passed = now - seen_;
  const std::optional<duration> used = cpu_time(thread_);
  if (used && used_ && is_runnable(thread_)) {
    counted_ += *used - *used_;
  } else {
    counted_ += passed;
  }
  seen_ = now;
  used_ = used;
  return counted_;
}

}  // namespace manyworlds::inline v0::detail::nccl
