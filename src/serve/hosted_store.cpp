#include "manyworlds/serve/hosted_store.hpp"

#include <fmt/format.h>

#include <stdexcept>

#include "manyworlds/world/runtime_core.hpp"

namespace manyworlds::inline v0 {

namespace {

/// Of a server whose runtime ends first: the task has been cancelled by then.
constexpr duration stop_patience = std::chrono::seconds(5);

socket_address checked(std::string_view address, bool insecure) {
  const auto parsed = socket_address::parse(address);
  if (!parsed) {
    throw std::invalid_argument(
        fmt::format("\"{}\" is no numeric address with a port", address));
  }
  if (!parsed->is_loopback() && !insecure) {
    throw std::invalid_argument(fmt::format(
        "a store at {} is open to the network: say insecure = true if that is meant",
        address));
  }
  return *parsed;
}

tcp_store_server_options reporting_to(runtime_core& rt) {
  tcp_store_server_options options;
  // The server serves no longer than the runtime turns.
  options.report = [&rt](std::string_view line) { rt.log(log_level::warning, line); };
  return options;
}

task<void> serve(std::shared_ptr<tcp_store_server> server) { co_await server->serve(); }

task<void> stop(std::shared_ptr<tcp_store_server> server) {
  server->stop();
  co_return;
}

}  // namespace

hosted_store::hosted_store(runtime& rt, std::string_view address, bool insecure)
    : runtime_(rt),
      server_(std::make_shared<tcp_store_server>(rt.service(), checked(address, insecure),
                                                 reporting_to(rt.core()))),
      serving_(rt.start_service(serve(server_))) {}

hosted_store::~hosted_store() {
  // A forked child has neither the thread nor the right to stop it.
  if (runtime_.core().is_forked_child()) return;
  // On the server's own thread: its event is not for others.
  const started<void> stopping = runtime_.start_service(stop(server_));
  (void)serving_.wait_for(stop_patience);
}

}  // namespace manyworlds::inline v0
