#include "launch/worker_result.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>

namespace manyworlds::inline v0::detail {

namespace {

constexpr const char* result_memory = "mw-result";

}  // namespace

worker_result::worker_result() : memory_(::memfd_create(result_memory, MFD_CLOEXEC)) {
  if (!memory_)
    throw std::system_error(errno, std::generic_category(), "memory for a result");
}

std::string worker_result::path() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), memory_.get());
}

bool is_result_memory(int descriptor) {
  const std::string wanted = fmt::format("/memfd:{}", result_memory);
  const std::string name = fmt::format("/proc/self/fd/{}", descriptor);
  std::array<char, 64> target{};
  const ssize_t size = ::readlink(name.c_str(), target.data(), target.size());
  return size > 0 && std::string_view(target.data(), static_cast<std::size_t>(size))
                         .starts_with(wanted);
}

std::string worker_result::read() const {
  std::string all(longest_result, '\0');
  std::size_t size = 0;
  while (size < all.size()) {
    const ssize_t got = ::pread(memory_.get(), all.data() + size, all.size() - size,
                                static_cast<off_t>(size));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  all.resize(size);
  return all;
}

}  // namespace manyworlds::inline v0::detail
