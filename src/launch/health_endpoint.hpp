// Health endpoint: answers over HTTP whether a job is well, for probes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "io/reactor.hpp"
#include "manyworlds/coro/task.hpp"

namespace manyworlds::inline v0::detail {

/// What a probe is answered: 200 or 503, and the reason as text.
struct health {
  bool is_well = true;
  std::string reason;
};

/// Returns whether an endpoint may listen there: "PORT" or "ADDRESS:PORT".
[[nodiscard]] bool is_probe_address(const std::string& text);

/// An HTTP server by libmicrohttpd, which is looked for at run time. The reactor runs it:
/// one that does not turn gives no answer, which probes take for illness.
///
/// Thread: the reactor's. Lifetime: the reactor outlives it.
class health_endpoint {
 public:
  using source = std::function<health()>;

  /// Listens at "PORT" or "ADDRESS:PORT", on loopback unless the address says otherwise.
  /// Errors: std::runtime_error naming the address, or the library that is missing.
  health_endpoint(reactor& home, const std::string& address, source ask);
  health_endpoint(const health_endpoint&) = delete;
  health_endpoint& operator=(const health_endpoint&) = delete;
  ~health_endpoint();

  /// Answers until it is cancelled.
  [[nodiscard]] task<void> serve();

 private:
  class server;
  reactor& home_;
  std::unique_ptr<server> server_;
};

}  // namespace manyworlds::inline v0::detail
