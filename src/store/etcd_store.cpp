#include "manyworlds/store/etcd_store.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/store/run_on.hpp"
#include "store/etcd_features.hpp"

#if MANYWORLDS_HAS_ETCD
#include "store/etcd_client.hpp"
#endif

namespace manyworlds::inline v0 {

using namespace detail;

// ------------------------------------------------------------------------- Transactions

etcd_transaction& etcd_transaction::when(etcd_target target, std::string key,
                                         std::int64_t number, etcd_relation relation) {
  if (target == etcd_target::value)
    throw std::invalid_argument(
        "etcd_transaction::when compares a number: a value is "
        "compared by when_value");
  comparisons_.push_back({target, relation, std::move(key), number, {}});
  return *this;
}
etcd_transaction& etcd_transaction::when_value(std::string key, std::string value,
                                               etcd_relation relation) {
  comparisons_.push_back(
      {etcd_target::value, relation, std::move(key), 0, std::move(value)});
  return *this;
}
etcd_transaction& etcd_transaction::then_set(std::string key, std::string value,
                                             std::int64_t lease) {
  then_.push_back({store_operation::set, std::move(key), std::move(value), lease});
  return *this;
}
etcd_transaction& etcd_transaction::then_get(std::string key) {
  then_.push_back({store_operation::get, std::move(key), {}, 0});
  return *this;
}
etcd_transaction& etcd_transaction::then_erase(std::string key) {
  then_.push_back({store_operation::erase, std::move(key), {}, 0});
  return *this;
}
etcd_transaction& etcd_transaction::otherwise_set(std::string key, std::string value,
                                                  std::int64_t lease) {
  otherwise_.push_back({store_operation::set, std::move(key), std::move(value), lease});
  return *this;
}
etcd_transaction& etcd_transaction::otherwise_get(std::string key) {
  otherwise_.push_back({store_operation::get, std::move(key), {}, 0});
  return *this;
}
etcd_transaction& etcd_transaction::otherwise_erase(std::string key) {
  otherwise_.push_back({store_operation::erase, std::move(key), {}, 0});
  return *this;
}

#if MANYWORLDS_HAS_ETCD

namespace {

/// Keeps the client until the operation has ended, also beyond the store itself.
template <class T>
task<T> run_at_etcd(std::shared_ptr<etcd_client> client, task<T> operation) {
  executor& where = client->home();
  if constexpr (std::is_void_v<T>) {
    co_await run_on(where, std::move(operation));
  } else {
    co_return co_await run_on(where, std::move(operation));
  }
}

/// Gives what is used on the client's thread back there.
template <class State>
void return_to_etcd(std::shared_ptr<etcd_client> client, std::shared_ptr<State> state) {
  etcd_client& at = *client;
  at.run_later([s = std::move(state)]() mutable { s.reset(); });
}

}  // namespace

// ------------------------------------------------------------------------------- Leases

etcd_lease& etcd_lease::operator=(etcd_lease&& other) noexcept {
  if (this == &other) return *this;
  let_go();
  client_ = std::move(other.client_);
  state_ = std::move(other.state_);
  return *this;
}

etcd_lease::~etcd_lease() { let_go(); }

void etcd_lease::let_go() noexcept {
  if (!state_) return;
  etcd_client* const at = client_.get();
  at->run_later([at, s = std::move(state_)]() mutable { at->let_go(std::move(s)); });
  client_.reset();
}

std::int64_t etcd_lease::id() const noexcept { return state_->id; }

duration etcd_lease::granted() const noexcept { return state_->granted; }

bool etcd_lease::is_lost() const noexcept {
  return state_->is_lost.load() || client_->home().now() >= state_->expiry.load();
}

task<std::string> etcd_lease::lost() {
  return run_at_etcd(client_, client_->await_loss(state_));
}

task<void> etcd_lease::revoke(duration limit) {
  return run_at_etcd(client_, client_->revoke(state_, limit));
}

// ------------------------------------------------------------------------------ Watches

etcd_watch& etcd_watch::operator=(etcd_watch&& other) noexcept {
  if (this == &other) return *this;
  let_go();
  client_ = std::move(other.client_);
  state_ = std::move(other.state_);
  return *this;
}

etcd_watch::~etcd_watch() { let_go(); }

void etcd_watch::let_go() noexcept {
  if (state_) return_to_etcd(std::move(client_), std::move(state_));
}

task<etcd_changes> etcd_watch::next() {
  return run_at_etcd(client_, client_->next(state_));
}

// -------------------------------------------------------------------------------- Store

etcd_store::etcd_store(const std::string& endpoints, etcd_store_options options)
    : client_(std::make_shared<etcd_client>(endpoints, std::move(options))) {}

etcd_store::~etcd_store() { end_users(); }

std::string etcd_store::address() const { return client_->gateway().address(); }

std::string etcd_store::trouble() const { return client_->gateway().trouble(); }

task<store_reply> etcd_store::perform(store_request request) {
  check_limits(request, client_->limits(), address());
  return run_at_etcd(client_, client_->perform(std::move(request)));
}

task<etcd_lease> etcd_store::grant(duration at_least, duration limit) {
  std::shared_ptr<etcd_client> client = client_;
  auto granting = run_at_etcd(client, client->grant(at_least, limit));
  std::shared_ptr<etcd_lease_state> state = co_await std::move(granting);
  co_return etcd_lease(std::move(client), std::move(state));
}

task<std::int64_t> etcd_store::set_leased(std::string key, std::string value,
                                          const etcd_lease& lease, duration limit) {
  etcd_transaction setting;
  setting.then_set(std::move(key), std::move(value), lease.id());
  etcd_outcome done = co_await commit(std::move(setting), limit);
  co_return done.revision;
}

task<std::optional<etcd_entry>> etcd_store::entry(std::string key, duration limit) {
  etcd_transaction reading;
  reading.then_get(std::move(key));
  etcd_outcome read = co_await commit(std::move(reading), limit);
  co_return std::move(read.entries.at(0));
}

task<etcd_listing> etcd_store::list(std::string prefix, duration limit) {
  return run_at_etcd(client_, client_->list(std::move(prefix), limit));
}

task<etcd_outcome> etcd_store::commit(etcd_transaction transaction, duration limit) {
  return run_at_etcd(client_, client_->commit(std::move(transaction), limit));
}

etcd_watch etcd_store::watch(std::string key, std::int64_t from_revision) {
  return etcd_watch(client_,
                    std::make_shared<etcd_watch_state>(
                        client_->gateway(), client_->name_of(key), "", from_revision));
}

etcd_watch etcd_store::watch_prefix(std::string prefix, std::int64_t from_revision) {
  std::string begin = client_->name_of(prefix);
  std::string end = etcd::end_of_prefix(begin);
  return etcd_watch(
      client_, std::make_shared<etcd_watch_state>(client_->gateway(), std::move(begin),
                                                  std::move(end), from_revision));
}

task<void> etcd_store::compact(std::int64_t revision, duration limit) {
  return run_at_etcd(client_, client_->compact(revision, limit));
}

task<std::string> etcd_store::server_version(duration limit) {
  return run_at_etcd(client_, client_->server_version(limit));
}

#else  // MANYWORLDS_HAS_ETCD

// Nothing but the constructor of the store can be called: it makes no leases or watches.

namespace detail {
class etcd_client {};
struct etcd_lease_state {};
struct etcd_watch_state {};
}  // namespace detail

namespace {
[[noreturn]] void refuse_without_etcd() {
  throw std::runtime_error(
      "etcd store: this build of manyworlds has none: it was made without the headers of "
      "libcurl or nlohmann-json (Debian: libcurl4-openssl-dev, nlohmann-json3-dev)");
}
}  // namespace

etcd_lease& etcd_lease::operator=(etcd_lease&&) noexcept { return *this; }
etcd_lease::~etcd_lease() { let_go(); }
void etcd_lease::let_go() noexcept {}
std::int64_t etcd_lease::id() const noexcept { return 0; }
duration etcd_lease::granted() const noexcept { return {}; }
bool etcd_lease::is_lost() const noexcept { return true; }
task<std::string> etcd_lease::lost() { refuse_without_etcd(); }
task<void> etcd_lease::revoke(duration) { refuse_without_etcd(); }
etcd_watch& etcd_watch::operator=(etcd_watch&&) noexcept { return *this; }
etcd_watch::~etcd_watch() { let_go(); }
void etcd_watch::let_go() noexcept {}
task<etcd_changes> etcd_watch::next() { refuse_without_etcd(); }

etcd_store::etcd_store(const std::string&, etcd_store_options) { refuse_without_etcd(); }
etcd_store::~etcd_store() { end_users(); }
std::string etcd_store::address() const { return {}; }
std::string etcd_store::trouble() const { return {}; }
task<store_reply> etcd_store::perform(store_request) { refuse_without_etcd(); }
task<etcd_lease> etcd_store::grant(duration, duration) { refuse_without_etcd(); }
task<std::int64_t> etcd_store::set_leased(std::string, std::string, const etcd_lease&,
                                          duration) {
  refuse_without_etcd();
}
task<std::optional<etcd_entry>> etcd_store::entry(std::string, duration) {
  refuse_without_etcd();
}
task<etcd_listing> etcd_store::list(std::string, duration) { refuse_without_etcd(); }
task<etcd_outcome> etcd_store::commit(etcd_transaction, duration) {
  refuse_without_etcd();
}
etcd_watch etcd_store::watch(std::string, std::int64_t) { refuse_without_etcd(); }
etcd_watch etcd_store::watch_prefix(std::string, std::int64_t) { refuse_without_etcd(); }
task<void> etcd_store::compact(std::int64_t, duration) { refuse_without_etcd(); }
task<std::string> etcd_store::server_version(duration) { refuse_without_etcd(); }

#endif  // MANYWORLDS_HAS_ETCD

}  // namespace manyworlds::inline v0
