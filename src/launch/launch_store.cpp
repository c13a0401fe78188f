#include "manyworlds/launch/launch_store.hpp"

#include <fmt/format.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "launch/launch_keys.hpp"
#include "launch/own_address.hpp"
#include "launch/pmix_session.hpp"
#include "launch/variable_reader.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

/// Limit for the end of the task beside the store, which was cancelled by then.
constexpr duration beside_patience = std::chrono::seconds(5);
/// How long another member that ends tries to be seen by rank 0.
constexpr duration presence_patience = std::chrono::seconds(1);
/// How often rank 0 looks whether the others are gone.
constexpr duration gone_look = std::chrono::milliseconds(2);

/// Returns where rank 0 listens. A name may lead to loopback on the machine that has it,
/// and elsewhere to that machine: there the address that peers reach is taken.
std::string address_to_host(const launch_context& job) {
  const std::uint16_t port = port_of(job.store).value_or(0);
  if (job.place != store_place::rank_zero) return own_address(job).with_port(port).text();
  if (job.is_local() || names_loopback(host_of(job.store))) return job.store;
  for (const socket_address& each : look_up(job, job.store)) {
    if (!each.is_loopback()) return job.store;
  }
  return own_address(job).with_port(port).text();
}

std::unique_ptr<hosted_store> host_if_needed(runtime& rt, const launch_context& job) {
  if (job.place == store_place::launcher || job.rank != 0) return nullptr;
  hosted_store_options options;
  options.secret = job.secret();
  options.insecure = job.insecure;
  return std::make_unique<hosted_store>(rt, address_to_host(job), options);
}

/// The store's clients prove the job's secret. torchrun's store knows no greeting.
tcp_store_options client_options(const launch_context& job, tcp_store_options options) {
  const bool is_pytorchs =
      job.place == store_place::launcher && job.launcher == launcher_kind::torchrun;
  if (options.secret.empty() && !is_pytorchs) options.secret = job.secret();
  return options;
}

std::string share_by_pmix(const launch_context& job, const hosted_store* host,
                          duration limit) {
  if (!job.pmix) {
    throw launch_error("PMIX_NAMESPACE",
                       "a context of launch_context::from_environment, which asks PMIx");
  }
  try {
    return job.pmix->share(host ? host->address() : std::string(), limit);
  } catch (const std::runtime_error& e) {
    throw std::runtime_error(fmt::format(
        "the members cannot tell each other by PMIx where the store is: {}", e.what()));
  }
}

std::string endpoint_to_dial(const launch_context& job, const hosted_store* host,
                             duration limit) {
  if (job.place == store_place::published) {
    std::string told = share_by_pmix(job, host, limit);
    return host ? host->address() : std::move(told);
  }
  return host ? host->address() : job.store;
}

}  // namespace

launch_store::launch_store(runtime& rt, const launch_context& job,
                           launch_store_options options)
    : runtime_(rt),
      options_(options),
      size_(job.size),
      host_(host_if_needed(rt, job)),
      endpoint_(endpoint_to_dial(job, host_.get(), options.join)),
      keys_(std::make_shared<launch_keys>(rt, job, endpoint_,
                                          client_options(job, options.client))),
      beside_(rt.start_service(launch_keys::serve(keys_))) {
  MW_ASSERT(!host_ || job.rank == 0, "rank 0 hosts the store, and no other member");
}

launch_store::~launch_store() {
  end_users();
  if (access::core(runtime_).is_forked_child()) return;
  // Rank 0 waits for a member that it has not seen.
  if (keys_->shows_presence() && !runtime_.is_stopping())
    (void)beside_.wait_for(presence_patience);
  keys_->stop();
  (void)beside_.wait_for(beside_patience);
  if (host_ && size_ > 1 && !runtime_.is_stopping()) wait_for_the_others();
}

std::string launch_store::address() const { return "tcp://" + endpoint_; }
std::string launch_store::trouble() const { return keys_->trouble(); }
std::string launch_store::prefix() const { return keys_->prefix(); }

task<store_reply> launch_store::perform(store_request request) {
  return launch_keys::perform(keys_, std::move(request));
}

void launch_store::wait_for_the_others() noexcept {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto until = now() + options_.linger;
  const auto come_in_time = [](std::shared_ptr<launch_keys> keys,
                               duration limit) -> task<void> {
    try {
      co_await keys->all_have_come(limit);
    } catch (const store_error&) {
      co_return;  // those who have not come are not waited for
    }
  };
  try {
    const started<void> coming =
        runtime_.start_service(come_in_time(keys_, options_.linger));
    (void)coming.wait_for(options_.linger + beside_patience);
    keys_.reset();
    while (host_->connections() > 0 && now() < until)
      std::this_thread::sleep_for(gone_look);
    if (const std::size_t left = host_->connections(); left > 0) {
      access::core(runtime_).log(
          log_level::warning,
          fmt::format(
              "the store at {} ends with rank 0, while {} connections to it are "
              "open after {} s",
              endpoint_, left,
              std::chrono::duration_cast<std::chrono::seconds>(options_.linger).count()));
    }
  } catch (...) {
    return;  // no memory: the store ends at once
  }
}

}  // namespace manyworlds::inline v0
