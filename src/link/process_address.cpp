#include "manyworlds/link/process_address.hpp"

#include <fmt/format.h>

namespace manyworlds::inline v0 {

std::string incarnation::text() const {
  std::string digits;
  for (std::size_t i = 0; i < 4; ++i) {
    digits += fmt::format("{:02x}", std::to_integer<unsigned>(bytes_[i]));
  }
  return digits;
}

void process_address::write(wire_writer& out) const {
  out.put_raw(id.raw()).put(endpoint.text()).put(identity.pid).put(identity.host.view());
}

process_address process_address::read(wire_reader& in) {
  process_address a;
  a.id = incarnation(in.take(incarnation::size).first<incarnation::size>());
  const std::string endpoint(in.get_text(64));
  const auto parsed = socket_address::parse(endpoint);
  if (!parsed) throw wire_error("\"" + endpoint + "\" is no address");
  a.endpoint = *parsed;
  a.identity.pid = in.get<std::int64_t>();
  a.identity.host = in.get_text(63);
  return a;
}

std::string process_address::text() const {
  return fmt::format("{} (pid {}) at {}", identity.host.view(), identity.pid,
                     endpoint.text());
}

}  // namespace manyworlds::inline v0
