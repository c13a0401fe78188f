#include "io/system_environment.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <system_error>

namespace manyworlds::inline v0::detail {

std::string own_host_name() {
  char host[HOST_NAME_MAX + 1]{};
  // A name that was cut short is not terminated; the last byte is never written.
  const bool is_named = ::gethostname(host, sizeof host - 1) == 0 && host[0] != '\0';
  return is_named ? host : "localhost";
}

engine_choice system_environment::make_engine(engine_kind kind) {
  return detail::make_engine(kind);
}

void system_environment::fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t filled = ::getrandom(bytes.data(), bytes.size(), 0);
    if (filled >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(filled));
    } else if (errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), "getrandom");
    }
  }
}

process_identity system_environment::identity() const {
  return {::getpid(), decltype(process_identity::host)::clipped(own_host_name())};
}

}  // namespace manyworlds::inline v0::detail
