#include "io/resolve.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "duration_text.hpp"
#include "io/current_reactor.hpp"
#include "io/dns_query.hpp"
#include "io/name_files.hpp"
#include "manyworlds/coro/within.hpp"

namespace manyworlds::inline v0::detail {

namespace {

std::optional<host_and_port_number> split_name(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == 0 || colon == std::string_view::npos) return std::nullopt;
  host_and_port_number name(std::string(text.substr(0, colon)), 0);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, name.port);
  // A colon in the host means an IPv6 address without its brackets: its last group is no
  // port.
  const bool is_name = name.host.find_first_of(":[]") == std::string::npos;
  if (error != std::errc{} || stop != end || !is_name) return std::nullopt;
  return name;
}

/// Returns true if a name is this top-level domain or below it; ASCII without case.
bool is_below(std::string_view name, std::string_view domain) noexcept {
  if (name.ends_with('.')) name.remove_suffix(1);
  if (name.size() < domain.size()) return false;
  const std::string_view end = name.substr(name.size() - domain.size());
  const bool is_same =
      std::equal(end.begin(), end.end(), domain.begin(),
                 [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; });
  return is_same &&
         (end.size() == name.size() || name[name.size() - end.size() - 1] == '.');
}

resolution cannot_resolve(const host_and_port_number& name, const std::string& why) {
  return resolution::failed("cannot resolve host '" + name.host + "': " + why);
}

}  // namespace

/// Looks a name up. Sets `asked` to the servers as soon as they are known.
task<resolution> look_up(reactor& home, const host_and_port_number& name,
                         const resolve_options& options, std::string& asked) {
  auto in_hosts = look_in_hosts(options.hosts_file.str(), name.host, name.port);
  auto known = co_await std::move(in_hosts);
  if (!known.empty()) co_return resolution::success(std::move(known));
  // RFC 6761: no server has such a name.
  if (is_below(name.host, "invalid")) co_return cannot_resolve(name, "no such name");
  dns_settings settings = load_dns_settings(options.settings_file.str());
  asked = text_of(settings.servers);
  auto asking = ask_name_servers(home, name, std::move(settings));
  co_return co_await std::move(asking);
}

task<resolution> resolve(std::string host_and_port) {
  return resolve(std::move(host_and_port), resolve_options{});
}

task<resolution> resolve(std::string host_and_port, resolve_options options) {
  if (const auto numeric = socket_address::parse(host_and_port))
    co_return resolution::success({*numeric});
  const auto name = split_name(host_and_port);
  if (!name) {
    co_return resolution::failed(
        "'" + host_and_port + "' is not an address: expected host:port or [IPv6]:port");
  }
  // RFC 6761: this host, no matter what a name server would say.
  if (is_below(name->host, "localhost")) {
    const auto v6 = socket_address::parse("[::1]:" + std::to_string(name->port));
    co_return resolution::success({socket_address::loopback(name->port), *v6});
  }
  reactor* const home = current_reactor();
  if (home == nullptr) {
    co_return cannot_resolve(
        *name, "names are looked up on a reactor; start the task on a runtime");
  }
  if (home->io().name() == "simulated")
    co_return cannot_resolve(*name,
                             "the simulated network has no names: give an address");
  std::string asked;
  try {
    auto looking = look_up(*home, *name, options, asked);
    co_return co_await within(std::move(looking), options.limit);
  } catch (const timed_out&) {
    if (!asked.empty()) asked = " from the name server " + asked;
    co_return cannot_resolve(
        *name, "no answer" + asked + " within " + duration_text(options.limit));
  } catch (const std::runtime_error& e) {
    // The process is out of descriptors, or c-ares gives a reason.
    co_return cannot_resolve(*name, e.what());
  }
}

}  // namespace manyworlds::inline v0::detail
