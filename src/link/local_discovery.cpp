#include "link/local_discovery.hpp"

#include "link/death_watch.hpp"
#include "link/local_peer.hpp"
#include "link/socket_pairing.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

namespace {
constexpr std::size_t most_told = 32;
}  // namespace

local_discovery::local_discovery(endpoint& owner, reactor& service, environment& env,
                                 const endpoint_options& options)
    : owner_(owner),
      service_(service),
      simulated_(env.host()),
      pools_(options.pools),
      copy_thread_(options.copy_thread) {
  const incarnation& self = owner.self().id;
  auto& told = static_cast<pairing_listener&>(*this);
  if (simulated_) {
    deaths_ = simulated_->make_death_notices(service);
    if (!options.shared_memory) return;
    pairing_ = simulated_->make_pairing(service, self, told, options.read_peers);
  } else {
    deaths_ =
        std::make_unique<death_watch>(service, options.death_thread,
                                      [this](std::string line) { log(std::move(line)); });
    if (!options.shared_memory) return;
    pairing_ =
        std::make_unique<socket_pairing>(service, env, self, told, options.read_peers);
  }
}

local_discovery::~local_discovery() = default;

std::string local_discovery::refusal() const {
  if (!pairing_) return turned_off;
  return owner_.user() ? "" : "no reactor there would read it";
}

std::string local_discovery::listening_refusal() const {
  const std::string all = refusal();
  return all.empty() ? pairing_->refusal() : all;
}

void local_discovery::begin() {
  if (!pairing_ || simulated_) return;
  MW_ASSERT(!futexes_, "liveness is held from one begin to its end");
  futexes_.emplace();
  if (!futexes_->is_installed()) {
    log("the kernel takes no list of robust futexes here: peers notice the death of this "
        "process by its sockets and its process handle");
  }
  pairing_->hold_in(*futexes_);
  if (!pairing_->refusal().empty()) {
    owner_.log(log_level::warning,
               pairing_->refusal() +
                   ": peers that dial this process share no memory with it, and use tcp");
  }
}

void local_discovery::end() noexcept { futexes_.reset(); }

task<void> local_discovery::run() {
  if (pairing_) co_await pairing_->run();
}

const pairing_nonces* local_discovery::expected_nonces(const incarnation& from) {
  link* const l = owner_.link_to(from);
  return l ? l->local().expected_nonces() : nullptr;
}

void local_discovery::paired(const incarnation& from, shared_parts parts) {
  if (link* const l = owner_.link_to(from)) l->local().keep_request(std::move(parts));
}

void local_discovery::log_refusal(const std::string& reason, std::string line) {
  // Reasons of peers may differ every time, so their number is limited.
  const bool is_news = told_.size() < most_told && told_.insert(reason).second;
  owner_.log(is_news ? log_level::warning : log_level::debug, std::move(line));
}

void local_discovery::log(std::string line) noexcept {
  owner_.log(log_level::info, std::move(line));
}

}  // namespace manyworlds::inline v0::detail::shm
