#include "launch/attempt_store.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "launch/rendezvous_backends.hpp"
#include "launch/variable_reader.hpp"
#include "store/tcp_store_server.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// The store before ends in its own time, and may hold the port for a moment.
constexpr duration until_port_is_free = std::chrono::seconds(2);

socket_address address_of_job(const launch_options& job) {
  const auto address = socket_address::parse(endpoint_of(job.host, job.store_port));
  if (!address) {
    throw std::invalid_argument(
        fmt::format("launch: the host \"{}\" is no numeric address", job.host));
  }
  const bool is_open = job.meeting.secret.empty() && !job.meeting.insecure;
  if (is_open && !address->is_loopback()) {
    throw std::invalid_argument(fmt::format(
        "launch: the workers' store at {} needs a secret, or a network that is trusted",
        job.host));
  }
  return *address;
}

}  // namespace

attempt_store::attempt_store(runtime& rt, const launch_options& job)
    : runtime_(rt), how_(job.meeting), listen_(address_of_job(job)) {}

task<std::string> attempt_store::serve() {
  served_.reset();
  runtime_core& core = access::core(runtime_);
  tcp_store_server_options options;
  options.secret = how_.secret;
  options.insecure = how_.insecure;
  options.report = [&core](std::string_view line) { core.log(log_level::warning, line); };
  seat_tries tries;
  const time_point until = later(runtime_.home().now(), until_port_is_free);
  for (;;) {
    try {
      auto server = std::make_shared<tcp_store_server>(core.service(), listen_, options);
      std::string address = server->address().text();
      served_ = std::make_unique<served_store>(runtime_, std::move(server));
      co_return address;
    } catch (const std::system_error& e) {
      if (e.code().value() != EADDRINUSE || runtime_.home().now() >= until) throw;
    }
    co_await tries.until_next();
  }
}

std::string attempt_store::reach(const std::string& address, scope& relaying) {
  if (relay_) relay_->stop();
  relay_.reset();
  if (how_.secret.empty()) return address;
  relay_ =
      std::make_shared<store_relay>(access::core(runtime_).user(), address, how_.secret);
  auto run = [](std::shared_ptr<store_relay> relay) -> task<void> {
    co_await relay->serve();
  };
  relaying.spawn(run(relay_));
  return relay_->address().text();
}

void attempt_store::end() noexcept {
  if (relay_) relay_->stop();
  relay_.reset();
  served_.reset();
}

}  // namespace manyworlds::inline v0::detail
