#include "link/endpoint.hpp"

#include <fmt/format.h>

#include <stdexcept>

#include "link/local_discovery.hpp"
#include "link/local_peer.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

process_address name_self(environment& env) {
  std::array<std::byte, incarnation::size> raw;
  env.fill_random(raw);
  process_address self;
  self.id = incarnation(raw);
  self.identity = env.identity();
  return self;
}

const endpoint_options& checked(const endpoint_options& o) {
  const std::string objection =
      listening_objection(o.listen, !o.secret.empty(), o.insecure);
  if (!objection.empty()) throw std::invalid_argument(objection);
  if (!o.secret.empty() && !can_prove()) {
    throw std::invalid_argument(
        "a secret is set, but this build has no libcrypto to use it");
  }
  return o;
}

}  // namespace

std::string listening_objection(const socket_address& address, bool has_secret,
                                bool insecure) {
  if (!address.is_valid()) return "the listening address is not an address";
  if (address.is_loopback() || has_secret || insecure) return {};
  return fmt::format(
      "listening at {} is open to the network: set a secret, or say insecure = true",
      address.text());
}

endpoint::endpoint(reactor& service, environment& env, endpoint_options options,
                   endpoint_listener& told)
    : service_(service),
      told_(told),
      options_(checked(options)),
      listener_(service, options_.listen),
      greeter_(env, name_self(env), options_.secret) {
  socket_address reachable = listener_.address();
  if (options_.advertise.is_valid()) {
    reachable = options_.advertise.port() != 0
                    ? options_.advertise
                    : options_.advertise.with_port(reachable.port());
  } else if (reachable.is_wildcard()) {
    throw std::invalid_argument(fmt::format(
        "peers cannot dial {}: say which address to advertise", reachable.text()));
  }
  greeter_.set_endpoint(reachable);
  last_look_ = service.now();
  discovery_ = std::make_unique<shm::local_discovery>(*this, service, env, options_);
}

endpoint::~endpoint() = default;

void endpoint::spawn(task<void> t) {
  if (scope_) scope_->spawn(contain(std::move(t)));
}

task<void> endpoint::contain(task<void> t) {
  try {
    co_await std::move(t);
  } catch (const std::exception& e) {
    remark(log_level::warning,
           std::string("a task of the service thread failed: ") + e.what());
  }
}

task<void> endpoint::run() {
  MW_ASSERT(!scope_, "an endpoint runs once at a time");
  auto body = [this](scope& s) -> task<void> {
    MW_ASSERT(service_.is_current(), "an endpoint runs on the service reactor");
    scope_ = &s;
    s.spawn(accept_all());
    s.spawn(beat());
    s.spawn(contain(discovery_->run()));
    co_await quiet_.wait();
    s.cancel();
  };
  // Links and worlds must find no scope once it is over, no matter how it ends.
  struct forget {
    endpoint& self;
    ~forget() {
      self.scope_ = nullptr;
      // The local peers are closed before this thread may end, since it holds the
      // liveness futexes.
      for (const auto& l : self.links()) l->local().close();
      self.discovery_->end();
    }
  } on_end{*this};
  discovery_->begin();
  co_await scope::run(body);
}

task<void> endpoint::say_goodbye(duration patience) {
  leaving_ = true;
  for (const auto& l : links()) l->say_goodbye();
  const time_point until = service_.now() + patience;
  while (!links().empty() && service_.now() < until)
    co_await sleep_for(std::chrono::milliseconds(1));
  quiet_.set();
}

std::vector<std::shared_ptr<link>> endpoint::links() const {
  std::vector<std::shared_ptr<link>> up;
  for (const auto& [id, e] : entries_) {
    if (e->up) up.push_back(e->up);
  }
  return up;
}

link* endpoint::link_to(const incarnation& peer) const {
  const auto found = entries_.find(peer);
  return found == entries_.end() ? nullptr : found->second->up.get();
}

std::optional<time_point> endpoint::last_heard(const incarnation& peer) const {
  const auto found = entries_.find(peer);
  if (found == entries_.end() || !found->second->up) return std::nullopt;
  return found->second->up->last_heard();
}

// --- links

std::shared_ptr<endpoint::entry> endpoint::entry_of(const incarnation& id) {
  auto& e = entries_[id];
  if (!e) e = std::make_shared<entry>();
  return e;
}

std::shared_ptr<link> endpoint::establish(stream s, process_address peer,
                                          bool dialled_by_us) {
  const auto e = entry_of(peer.id);
  // A peer that still trusted its link would not dial again.
  if (e->up) e->up->end(cause::connection_lost, "the peer has made a new link");
  MW_ASSERT(service_.is_current(), "links live on the service reactor");
  e->up =
      std::make_shared<link>(service_, std::move(s), std::move(peer), told_, *discovery_);
  e->dialled_by_us = dialled_by_us;
  e->unused_since = service_.now();
  e->changed.set();
  spawn(run_link(e->up));
  if (!dialled_by_us) e->up->local().begin_pairing();
  return e->up;
}

task<void> endpoint::run_link(std::shared_ptr<link> l) {
  try {
    co_await l->run();
  } catch (const std::exception& e) {
    l->end(cause::out_of_resources, e.what());
  }
  const auto found = entries_.find(l->peer().id);
  if (found == entries_.end() || found->second->up != l) co_return;
  found->second->up = nullptr;
  found->second->changed.set();
  if (!found->second->dialling && found->second->accepting == 0) entries_.erase(found);
}

}  // namespace manyworlds::inline v0::detail
