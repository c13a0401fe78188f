#include "launch/meeting_store.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

#include "io/resolve.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {

task<void> serve_store(std::shared_ptr<tcp_store_server> server) {
  co_await server->serve();
}

task<void> stop_store(std::shared_ptr<tcp_store_server> server) {
  server->stop();
  co_return;
}

tcp_store_options knowing(const secret_text& secret) {
  tcp_store_options how;
  how.secret = secret;
  return how;
}

tcp_store_server_options serving_as(runtime& rt, const rendezvous_options& options) {
  tcp_store_server_options how;
  how.secret = options.secret;
  how.insecure = options.insecure;
  runtime_core& core = access::core(rt);
  how.report = [&core](std::string_view line) { core.log(log_level::warning, line); };
  return how;
}

}  // namespace

served_store::served_store(runtime& rt, std::shared_ptr<tcp_store_server> server)
    : runtime_(rt), server_(std::move(server)) {
  (void)runtime_.start_service(serve_store(server_));
}

served_store::~served_store() {
  try {
    (void)runtime_.start_service(stop_store(server_));
  } catch (const std::exception& e) {
    access::core(runtime_).log(log_level::warning, e.what());
  }
}

meeting_store::meeting_store(runtime& rt, const rendezvous_options& options)
    : runtime_(rt),
      endpoint_(options.endpoint),
      how_(serving_as(rt, options)),
      client_(rt, options.endpoint, knowing(options.secret)) {}

task<std::unique_ptr<served_store>> meeting_store::try_to_serve() {
  const resolution found = co_await resolve(endpoint_);
  objection_ = found.failure();
  for (const socket_address& address : found.addresses()) {
    bool is_taken = false;
    std::unique_ptr<served_store> served = serve_at(reachable(address), is_taken);
    if (served) co_return served;
    // Another agent of this host serves at a name's first address of ours. At the second
    // one we would be a coordinator beside it.
    if (is_taken) break;
  }
  co_return nullptr;
}

/// Returns the address itself, but for a host's name that its own host takes for
/// loopback, as Debian's /etc/hosts does: others would not reach it there.
socket_address meeting_store::reachable(const socket_address& address) const {
  const bool is_meant =
      endpoint_.starts_with("localhost:") || socket_address::parse(endpoint_).has_value();
  if (is_meant || !address.is_loopback()) return address;
  return socket_address::parse(address.is_ipv6() ? "[::]:0" : "0.0.0.0:0")
      ->with_port(address.port());
}

std::unique_ptr<served_store> meeting_store::serve_at(const socket_address& address,
                                                      bool& is_taken) {
  try {
    auto server = std::make_shared<tcp_store_server>(access::core(runtime_).service(),
                                                     address, how_);
    return std::make_unique<served_store>(runtime_, std::move(server));
  } catch (const std::system_error& e) {
    const int why = e.code().value();
    is_taken = why == EADDRINUSE;
    if (!is_taken && why != EADDRNOTAVAIL) throw;
    objection_ = e.what();
  }
  return nullptr;
}

}  // namespace manyworlds::inline v0::detail
