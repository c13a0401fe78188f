#include "spmd/node_source.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>
#include <utility>

#include "manyworlds/coro/when_all.hpp"
#include "spmd/worker_invitation.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

static tcp_store_options store_options_of(runtime& controller) {
  tcp_store_options options;
  options.secret = access::core(controller).options().secret;
  return options;
}

/// Agents that reach this process elsewhere than on loopback have workers that could not.
static void check_reach(runtime& controller, const hosted_store& host) {
  const auto is_loopback = [](std::string_view address) {
    const auto parsed = socket_address::parse(address);
    return parsed && parsed->is_loopback();
  };
  const std::string_view listens = access::core(controller).options().listen.view();
  if (is_loopback(host.address()) || !is_loopback(listens)) return;
  throw std::invalid_argument(
      fmt::format("session: its nodes join at {}, but its runtime listens at {}, which "
                  "they cannot reach",
                  host.address(), listens));
}

node_source::node_source(runtime& controller, const nodes& how)
    : how_(how),
      host_(
          controller, how.listen.view(),
          hosted_store_options{.secret = access::core(controller).options().secret,
                               .insecure = access::core(controller).options().insecure}),
      store_(controller, host_.address(), store_options_of(controller)) {
  check_reach(controller, host_);
  for (int node = 0; node < how.count; ++node)
    nodes_.push_back(std::make_unique<node_link>(controller, node, how));
}

node_link& node_source::node_of(int worker) const noexcept {
  return *nodes_[static_cast<std::size_t>(worker / how_.workers_per_node)];
}

task<void> node_source::run(event& over) {
  std::vector<task<void>> links;
  for (const auto& node : nodes_) {
    links.push_back(node->run(store_, how_.limits, over));
  }
  co_await when_all(std::move(links));
}

task<void> node_source::start(int worker, std::uint64_t incarnation) {
  // The agent adds what only it knows: how the worker reaches this store, and where it
  // listens.
  const worker_invitation invitation{{session_, worker, count_, incarnation, how_.limits,
                                      worker % how_.workers_per_node},
                                     host_.address()};
  return node_of(worker).start(worker, incarnation, invitation.text());
}

task<std::string> node_source::ended(int worker) {
  const std::shared_ptr<node_seat> seat = node_of(worker).find(worker);
  if (!seat) co_return std::string();
  co_await seat->ended;
  co_return seat->how;
}

task<void> node_source::end(int worker, duration patience) {
  return node_of(worker).end(worker, patience);
}

std::int64_t node_source::pid(int worker) const noexcept {
  const std::shared_ptr<node_seat> seat = node_of(worker).find(worker);
  return seat ? seat->pid : 0;
}

}  // namespace manyworlds::inline v0::detail
