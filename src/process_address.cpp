#include "manyworlds/process_address.hpp"

#include <fmt/format.h>

namespace manyworlds::inline v0 {

std::string incarnation::text() const {
  std::string digits;
  for (std::size_t i = 0; i < 4; ++i) {
    digits += fmt::format("{:02x}", std::to_integer<unsigned>(bytes_[i]));
  }
  return digits;
}

std::string process_address::text() const {
  return fmt::format("{} (pid {}) at {}", identity.host.view(), identity.pid,
                     endpoint.text());
}

}  // namespace manyworlds::inline v0
