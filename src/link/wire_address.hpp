// Wire address: how the address of a process is written on the wire.
#pragma once

#include "link/wire.hpp"
#include "manyworlds/process_address.hpp"

namespace manyworlds::inline v0::detail {

inline void write(const process_address& a, wire_writer& out) {
  out.put_raw(a.id.raw()).put(a.endpoint.text());
  out.put(a.identity.pid).put(a.identity.host.view());
}

/// Errors: wire_error.
[[nodiscard]] inline incarnation read_incarnation(wire_reader& in) {
  return incarnation(in.take(incarnation::size).first<incarnation::size>());
}

/// Errors: wire_error.
[[nodiscard]] inline process_address read_address(wire_reader& in) {
  process_address a;
  a.id = read_incarnation(in);
  const std::string endpoint(in.get_text(64));
  const auto parsed = socket_address::parse(endpoint);
  if (!parsed) throw wire_error("\"" + endpoint + "\" is no address");
  a.endpoint = *parsed;
  a.identity.pid = in.get<std::int64_t>();
  a.identity.host = in.get_text(63);
  return a;
}

}  // namespace manyworlds::inline v0::detail
