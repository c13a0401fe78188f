// Resolve: turns "host:port" into addresses.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/io/socket_address.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

/// The result of a lookup: at least one address, in the order to try them, or why there
/// is none.
class resolution {
 public:
  [[nodiscard]] static resolution success(std::vector<socket_address> addresses) {
    return resolution(std::move(addresses), {});
  }
  [[nodiscard]] static resolution failed(std::string why) {
    return resolution({}, std::move(why));
  }

  [[nodiscard]] bool ok() const noexcept { return !addresses_.empty(); }
  [[nodiscard]] const std::vector<socket_address>& addresses() const noexcept {
    return addresses_;
  }
  /// Returns a sentence that names what was asked for; empty if ok.
  [[nodiscard]] const std::string& failure() const noexcept { return failure_; }

 private:
  resolution(std::vector<socket_address> addresses, std::string failure)
      : addresses_(std::move(addresses)), failure_(std::move(failure)) {}

  std::vector<socket_address> addresses_;
  std::string failure_;
};

/// Says where names are looked up, and for how long.
struct resolve_options {
  /// Bounds the whole lookup, no matter how many servers and search domains there are.
  duration limit = std::chrono::seconds(10);
  /// The file with lines of an address and its names, as in hosts(5).
  inline_text<255> hosts_file = "/etc/hosts";
  /// The file with name servers and search domains, as in resolv.conf(5). A server may
  /// carry a port: "nameserver 10.0.0.2:5353". Unless the file says otherwise, a try
  /// lasts 1 s and there are three.
  inline_text<255> settings_file = "/etc/resolv.conf";
};

/// Gives the addresses of "host:port".
///
/// Numeric addresses ("127.0.0.1:29500", "[::1]:29500") and `localhost` need no lookup.
/// Other names are looked for in the hosts file, then c-ares asks the name servers. Its
/// sockets are awaited on the task's home: no thread is started and nothing blocks. A
/// cancelled lookup ends at once, and has closed its sockets when its frame is gone.
///
/// Errors: names need a home that is a reactor of this machine. Elsewhere the lookup
/// fails and says so. So it does in a build without c-ares, for names that the hosts file
/// does not have.
///
///     const mw::resolution found = co_await mw::resolve("node7:29500");
///     if (!found.ok()) throw std::runtime_error(found.failure());
///     dial(found.addresses().front());
[[nodiscard]] task<resolution> resolve(std::string host_and_port);
[[nodiscard]] task<resolution> resolve(std::string host_and_port,
                                       resolve_options options);

}  // namespace manyworlds::inline v0::detail
