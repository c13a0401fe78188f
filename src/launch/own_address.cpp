#include "launch/own_address.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "io/descriptor.hpp"
#include "io/resolve.hpp"
#include "launch/variable_reader.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// Returns the variable that says where the store is.
std::string_view store_variable(const launch_context& job) {
  if (job.place == store_place::published) return "PMIX_NAMESPACE";
  if (job.launcher == launcher_kind::slurm) return "SLURM_STEP_NODELIST";
  if (job.launcher == launcher_kind::mwrun || job.launcher == launcher_kind::none)
    return "MANYWORLDS_STORE";
  return "MASTER_ADDR";
}

/// Returns the address from which this machine talks to `other`; needs no packet.
std::optional<socket_address> way_to(const socket_address& other) {
  sockaddr_storage storage{};
  auto* const any = reinterpret_cast<sockaddr*>(&storage);
  socklen_t size = other.to_native(&storage);
  const unique_descriptor probe(
      ::socket(storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe || ::connect(probe.get(), any, size) != 0) return std::nullopt;
  size = sizeof storage;
  if (::getsockname(probe.get(), any, &size) != 0) return std::nullopt;
  const auto found = socket_address::from_native(any, size);
  return found ? std::optional(found->with_port(0)) : std::nullopt;
}

/// Returns the address of the interface with that name, of IPv4 if it has both.
std::optional<socket_address> address_of_interface(std::string_view name) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(list, ::freeifaddrs);
  std::optional<socket_address> found;
  for (const ifaddrs* each = list; each; each = each->ifa_next) {
    if (!each->ifa_addr || each->ifa_name != name) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const auto address = socket_address::from_native(
        each->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (address && (!found || family == AF_INET)) found = address;
    if (family == AF_INET) break;
  }
  return found;
}

socket_address named_interface(const launch_context& job) {
  if (const auto address = socket_address::parse(endpoint_of(job.interface, 0)))
    return *address;
  if (const auto address = address_of_interface(job.interface)) return *address;
  throw launch_error("MANYWORLDS_INTERFACE", job.interface,
                     "an interface of this machine that has an address, or an address");
}

/// Where this machine's own name leads to loopback, as Debian has it, the address that
/// leads out is meant. 192.0.2.1 is nowhere (RFC 5737).
socket_address way_out(const launch_context& job, std::string_view endpoint) {
  const auto nowhere = socket_address::parse("192.0.2.1:1");
  MW_ASSERT(nowhere, "a numeric address is parsed");
  const auto out = way_to(*nowhere);
  if (out && !out->is_loopback()) return *out;
  throw launch_error(
      store_variable(job), endpoint,
      "an address that leads to other machines, since not all members are on this one "
      "(or MANYWORLDS_INTERFACE, the interface to use)");
}

}  // namespace

std::vector<socket_address> look_up(const launch_context& job,
                                    std::string_view endpoint) {
  if (const auto numeric = socket_address::parse(endpoint)) return {*numeric};
  // Names are looked up on a reactor, and the job's own runtime is not made yet.
  class runtime reading {
    runtime_options { .thread_name = "mw-lookup" }
  };
  // A lookup wants a port that can be dialled.
  const std::uint16_t port = port_of(endpoint).value_or(0);
  const resolution found = reading.run(
      resolve(endpoint_of(host_of(endpoint), port == 0 ? std::uint16_t{1} : port)));
  if (!found.ok()) {
    throw launch_error(store_variable(job), host_of(endpoint),
                       fmt::format("a name that can be looked up ({})", found.failure()));
  }
  std::vector<socket_address> addresses;
  for (const socket_address& each : found.addresses())
    addresses.push_back(each.with_port(port));
  return addresses;
}

socket_address own_address(const launch_context& job) {
  if (!job.interface.empty()) return named_interface(job);
  if (job.is_local() || names_loopback(host_of(job.store)))
    return socket_address::loopback(0);
  for (const socket_address& each : look_up(job, job.store)) {
    const auto way = way_to(each.port() == 0 ? each.with_port(1) : each);
    if (way && !way->is_loopback()) return *way;
  }
  return way_out(job, job.store);
}

}  // namespace manyworlds::inline v0::detail
