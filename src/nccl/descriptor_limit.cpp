#include "nccl/descriptor_limit.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <filesystem>
#include <iterator>
#include <system_error>

namespace manyworlds::inline v0::detail::nccl {

namespace {

/// What a communicator takes (2.28.9: sockets of the bootstrap, of the proxy and of its
/// threads, an eventfd each), and somewhat more, as the error may come once some are
/// back.
constexpr rlim_t near = 32;

}  // namespace

std::string descriptor_limit_note() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return {};
  }
  std::error_code failed;
  const std::filesystem::directory_iterator all("/proc/self/fd", failed);
  // Which takes one itself.
  const bool none_left = failed == std::errc::too_many_files_open;
  if (failed && !none_left) return {};
  const rlim_t open = none_left
                          ? limit.rlim_cur
                          : static_cast<rlim_t>(std::distance(begin(all), end(all)));
  if (open + near < limit.rlim_cur) return {};
  return fmt::format(
      "; {} of at most {} descriptors are open, and a communicator takes 10 to 12: raise "
      "the limit (RLIMIT_NOFILE, ulimit -n)",
      open, limit.rlim_cur);
}

}  // namespace manyworlds::inline v0::detail::nccl
