#include "manyworlds/io/socket_address.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace manyworlds::inline v0 {

namespace {

template <class Number>
std::optional<Number> parse_number(std::string_view text) noexcept {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

bool parse_host(int family, std::string_view host, void* bytes) noexcept {
  char terminated[INET6_ADDRSTRLEN + 1]{};
  if (host.size() >= sizeof terminated) return false;
  std::copy(host.begin(), host.end(), terminated);
  return ::inet_pton(family, terminated, bytes) == 1;
}

bool all_zero(const std::uint8_t* bytes, std::size_t count) noexcept {
  return std::all_of(bytes, bytes + count, [](std::uint8_t b) { return b == 0; });
}

}  // namespace

std::optional<socket_address> socket_address::parse(std::string_view text) noexcept {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const auto port = parse_number<std::uint16_t>(text.substr(colon + 1));
  if (!port) return std::nullopt;

  socket_address a;
  a.port_ = *port;
  if (!host.starts_with('[')) {
    if (!parse_host(AF_INET, host, a.bytes_)) return std::nullopt;
    a.family_ = family::ipv4;
    return a;
  }
  if (!host.ends_with(']')) return std::nullopt;
  host = host.substr(1, host.size() - 2);
  if (const std::size_t percent = host.find('%'); percent != std::string_view::npos) {
    const auto scope = parse_number<std::uint32_t>(host.substr(percent + 1));
    if (!scope) return std::nullopt;
    a.scope_ = *scope;
    host = host.substr(0, percent);
  }
  if (!parse_host(AF_INET6, host, a.bytes_)) return std::nullopt;
  a.family_ = family::ipv6;
  return a;
}

socket_address socket_address::loopback(std::uint16_t port) noexcept {
  socket_address a;
  a.family_ = family::ipv4;
  a.port_ = port;
  a.bytes_[0] = 127;
  a.bytes_[3] = 1;
  return a;
}

std::optional<socket_address> socket_address::from_native(const sockaddr* address,
                                                          unsigned length) noexcept {
  socket_address a;
  if (address == nullptr || length < sizeof(sa_family_t)) return std::nullopt;
  // It is copied out: the caller's storage need not have the type or the alignment of
  // what it holds.
  sa_family_t native_family{};
  std::memcpy(&native_family,
              reinterpret_cast<const char*>(address) + offsetof(sockaddr, sa_family),
              sizeof native_family);
  if (native_family == AF_INET && length >= sizeof(sockaddr_in)) {
    sockaddr_in in{};
    std::memcpy(&in, address, sizeof in);
    a.family_ = family::ipv4;
    a.port_ = ntohs(in.sin_port);
    std::memcpy(a.bytes_, &in.sin_addr, sizeof in.sin_addr);
    return a;
  }
  if (native_family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
    sockaddr_in6 in{};
    std::memcpy(&in, address, sizeof in);
    a.family_ = family::ipv6;
    a.port_ = ntohs(in.sin6_port);
    a.scope_ = in.sin6_scope_id;
    std::memcpy(a.bytes_, &in.sin6_addr, sizeof in.sin6_addr);
    return a;
  }
  return std::nullopt;
}

bool socket_address::is_loopback() const noexcept {
  if (family_ == family::ipv4) return bytes_[0] == 127;
  if (family_ != family::ipv6) return false;
  static constexpr std::uint8_t mapped_ipv4[12] = {0, 0, 0, 0, 0,   0,
                                                   0, 0, 0, 0, 255, 255};
  if (std::equal(mapped_ipv4, mapped_ipv4 + 12, bytes_)) return bytes_[12] == 127;
  return all_zero(bytes_, 15) && bytes_[15] == 1;
}

bool socket_address::is_wildcard() const noexcept {
  return is_valid() && all_zero(bytes_, family_ == family::ipv4 ? 4 : 16);
}

unsigned socket_address::to_native(void* storage) const noexcept {
  if (family_ == family::ipv4) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port_);
    std::memcpy(&in.sin_addr, bytes_, sizeof in.sin_addr);
    std::memcpy(storage, &in, sizeof in);
    return sizeof in;
  }
  if (family_ == family::ipv6) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port_);
    in.sin6_scope_id = scope_;
    std::memcpy(&in.sin6_addr, bytes_, sizeof in.sin6_addr);
    std::memcpy(storage, &in, sizeof in);
    return sizeof in;
  }
  return 0;
}

std::string socket_address::text() const {
  if (!is_valid()) return "(no address)";
  char host[INET6_ADDRSTRLEN]{};
  ::inet_ntop(family_ == family::ipv4 ? AF_INET : AF_INET6, bytes_, host, sizeof host);
  if (family_ == family::ipv4) return fmt::format("{}:{}", host, port_);
  if (scope_ == 0) return fmt::format("[{}]:{}", host, port_);
  return fmt::format("[{}%{}]:{}", host, scope_, port_);
}

}  // namespace manyworlds::inline v0
