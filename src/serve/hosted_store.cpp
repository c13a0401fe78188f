#include "manyworlds/serve/hosted_store.hpp"

#include <fmt/format.h>

#include <future>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "io/resolve.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "store/tcp_store_server.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

/// Limit for the end of a server if its runtime ends first: the task was cancelled by
/// then.
constexpr duration stop_patience = std::chrono::seconds(5);

/// Longer than the 10 s that a lookup takes at most.
constexpr duration lookup_patience = std::chrono::seconds(12);

/// Resolves an address on the service thread. The calling thread waits.
std::vector<socket_address> addresses_of(runtime& rt, const std::string& address) {
  if (const auto parsed = socket_address::parse(address)) return {*parsed};
  const auto answer = std::make_shared<std::promise<resolution>>();
  std::future<resolution> answered = answer->get_future();
  auto look_up = [](std::string name,
                    std::shared_ptr<std::promise<resolution>> into) -> task<void> {
    resolution found = co_await resolve(std::move(name));
    into->set_value(std::move(found));
  };
  const started<void> looking = rt.start_service(look_up(address, answer));
  if (answered.wait_for(lookup_patience) != std::future_status::ready) {
    throw std::invalid_argument(fmt::format(
        "the address \"{}\" of a store: the name lookup did not end in time", address));
  }
  const resolution found = answered.get();
  if (!found.ok()) {
    throw std::invalid_argument(
        fmt::format("the address \"{}\" of a store: {}", address, found.failure()));
  }
  return found.addresses();
}

void check_open(std::string_view said, const socket_address& address,
                const hosted_store_options& how) {
  if (address.is_loopback() || how.insecure || !how.secret.empty()) return;
  throw std::invalid_argument(fmt::format(
      "a store at {} is open to the network: give it a secret, or say insecure = true if "
      "that is meant",
      said));
}

tcp_store_server_options options_of(runtime_core& rt, const hosted_store_options& how) {
  tcp_store_server_options options;
  options.secret = how.secret;
  options.insecure = how.insecure;
  // The runtime outlives the server's last line.
  options.report = [&rt](std::string_view line) { rt.log(log_level::warning, line); };
  return options;
}

/// Listens at the first of the addresses that can be listened on.
std::shared_ptr<tcp_store_server> listening(runtime& rt, std::string_view said,
                                            const hosted_store_options& how) {
  const std::string address(said);
  const std::vector<socket_address> all = addresses_of(rt, address);
  MW_ASSERT(!all.empty(), "a name that was resolved has an address");
  for (std::size_t i = 0;; ++i) {
    check_open(said, all[i], how);
    try {
      auto server = std::make_shared<tcp_store_server>(access::core(rt).service(), all[i],
                                                       options_of(access::core(rt), how));
      const bool is_own_name =
          address.starts_with("localhost:") || socket_address::parse(address).has_value();
      if (all[i].is_loopback() && !is_own_name) {
        access::core(rt).log(
            log_level::warning,
            fmt::format("the store at {} listens on {}, because the name leads there on "
                        "this machine: other machines cannot reach it",
                        said, server->address().text()));
      }
      return server;
    } catch (const std::system_error&) {
      if (i + 1 == all.size()) throw;
    }
  }
}

task<void> serve(std::shared_ptr<tcp_store_server> server) { co_await server->serve(); }

task<void> stop(std::shared_ptr<tcp_store_server> server) {
  server->stop();
  co_return;
}

}  // namespace

hosted_store::hosted_store(runtime& rt, std::string_view address,
                           hosted_store_options options)
    : runtime_(rt),
      server_(listening(rt, address, options)),
      serving_(rt.start_service(serve(server_))) {}

std::string hosted_store::address() const { return server_->address().text(); }

std::size_t hosted_store::connections() const noexcept { return server_->connections(); }

hosted_store::~hosted_store() {
  // A forked child has neither the thread nor the right to stop it.
  if (access::core(runtime_).is_forked_child()) return;
  // Stop it on the server's own thread: its event is for that thread only.
  const started<void> stopping = runtime_.start_service(stop(server_));
  (void)serving_.wait_for(stop_patience);
}

}  // namespace manyworlds::inline v0
