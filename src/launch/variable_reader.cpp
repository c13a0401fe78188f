#include "launch/variable_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/io/socket_address.hpp"

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::size_t longest_text = 4096;

/// A host may be a name, an IPv4 or an IPv6 address, also with a scope.
bool is_a_host(std::string_view host) noexcept {
  return !host.empty() && host.size() <= 255 && std::ranges::all_of(host, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte > 0x20 && byte < 0x7f && c != '[' && c != ']' && c != '/';
  });
}

}  // namespace

std::optional<std::string_view> variable_reader::raw(std::string_view name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string> variable_reader::text(std::string_view name) const {
  const auto value = raw(name);
  if (!value) return std::nullopt;
  if (value->empty()) throw launch_error(name, "", "a text that is not empty");
  if (value->size() > longest_text) {
    throw launch_error(name, *value,
                       fmt::format("a text of at most {} bytes", longest_text));
  }
  return std::string(*value);
}

std::optional<std::string> variable_reader::text(std::string_view first,
                                                 std::string_view second) const {
  auto value = text(first);
  return value ? value : text(second);
}

std::string variable_reader::required(std::string_view name,
                                      std::string_view expected) const {
  const auto value = raw(name);
  if (!value) throw launch_error(name, expected);
  if (value->empty()) throw launch_error(name, "", expected);
  return *text(name);
}

std::optional<std::int64_t> variable_reader::number(std::string_view name,
                                                    std::int64_t least,
                                                    std::int64_t most) const {
  MW_ASSERT(least <= most, "a number has a range");
  const auto value = raw(name);
  if (!value) return std::nullopt;
  std::int64_t found = 0;
  const char* const end = value->data() + value->size();
  const auto parsed = std::from_chars(value->data(), end, found);
  if (value->empty() || parsed.ec != std::errc() || parsed.ptr != end || found < least ||
      found > most) {
    throw launch_error(name, *value, fmt::format("a number from {} to {}", least, most));
  }
  return found;
}

std::int64_t variable_reader::required_number(std::string_view name, std::int64_t least,
                                              std::int64_t most) const {
  const auto found = number(name, least, most);
  if (found) return *found;
  throw launch_error(name, fmt::format("a number from {} to {}", least, most));
}

bool variable_reader::flag(std::string_view name) const {
  const auto value = raw(name);
  if (!value || *value == "0") return false;
  if (*value == "1") return true;
  throw launch_error(name, *value, "0 or 1");
}

variable_reader::place variable_reader::required_place(std::string_view rank,
                                                       std::string_view size) const {
  place found;
  found.size = static_cast<rank_t>(required_number(size, 1, most_processes));
  const std::int64_t number = required_number(rank, 0, most_processes - 1);
  if (number >= found.size) {
    throw launch_error(rank, *raw(rank),
                       fmt::format("a number from 0 to {}, since {} is {}",
                                   found.size - 1, size, found.size));
  }
  found.rank = static_cast<rank_t>(number);
  return found;
}

std::optional<variable_reader::place> variable_reader::find_place(
    std::string_view rank, std::string_view size) const {
  if (!has(rank) && !has(size)) return std::nullopt;
  return required_place(rank, size);
}

std::optional<std::string> variable_reader::endpoint(std::string_view host,
                                                     std::string_view port) const {
  if (!has(host) && !has(port)) return std::nullopt;
  constexpr std::string_view expected = "the host where the store is";
  const std::string name = required(host, expected);
  if (!is_a_host(name)) throw launch_error(host, name, "the name or address of a host");
  const auto number = required_number(port, 1, 65535);
  return endpoint_of(name, static_cast<std::uint16_t>(number));
}

std::optional<std::string> variable_reader::endpoint(std::string_view name) const {
  const auto value = raw(name);
  if (!value) return std::nullopt;
  const auto port = port_of(*value);
  if (!port || *port == 0 || !is_a_host(host_of(*value)))
    throw launch_error(name, *value, "host:port, such as node1:29500 or [::1]:29500");
  return endpoint_of(host_of(*value), *port);
}

std::string_view host_of(std::string_view endpoint) noexcept {
  std::string_view host =
      endpoint.substr(0, std::min(endpoint.rfind(':'), endpoint.size()));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  return host;
}

std::optional<std::uint16_t> port_of(std::string_view endpoint) noexcept {
  const std::size_t colon = endpoint.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::uint16_t port = 0;
  const char* const end = endpoint.data() + endpoint.size();
  const auto parsed = std::from_chars(endpoint.data() + colon + 1, end, port);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return port;
}

std::string endpoint_of(std::string_view host, std::uint16_t port) {
  if (host.find(':') != std::string_view::npos) return fmt::format("[{}]:{}", host, port);
  return fmt::format("{}:{}", host, port);
}

bool names_loopback(std::string_view host) noexcept {
  if (host == "localhost") return true;
  const auto address = socket_address::parse(endpoint_of(host, 1));
  return address && address->is_loopback();
}

}  // namespace manyworlds::inline v0::detail
