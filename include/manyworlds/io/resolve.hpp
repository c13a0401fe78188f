// Resolve: from "host:port" to addresses.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/io/socket_address.hpp"

namespace manyworlds::inline v0 {

/// What a name resolved to: at least one address, in the order to try them, or why there
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
  /// A sentence naming what was asked for; empty if ok.
  [[nodiscard]] const std::string& failure() const noexcept { return failure_; }

 private:
  resolution(std::vector<socket_address> addresses, std::string failure)
      : addresses_(std::move(addresses)), failure_(std::move(failure)) {}

  std::vector<socket_address> addresses_;
  std::string failure_;
};

/// Numeric addresses ("127.0.0.1:29500", "[::1]:29500") are read at once. Names
/// ("node7:29500") are looked up by getaddrinfo on a thread of their own, since it blocks
/// for as long as the resolver of the system likes: bound it with a deadline. A cancelled
/// lookup is given up at once; its thread ends by itself, holding nothing of the
/// caller's.
[[nodiscard]] task<resolution> resolve(std::string host_and_port);

}  // namespace manyworlds::inline v0
