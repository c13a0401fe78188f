// etcd client: the operations of an etcd store, on the store's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/detail/root.hpp"
#include "manyworlds/store/etcd_store.hpp"
#include "store/etcd_gateway.hpp"
#include "store/etcd_stream.hpp"
#include "store/etcd_wire.hpp"
#include "store/turnstile.hpp"

namespace manyworlds::inline v0::detail {

/// The most operations in one transaction that etcd takes by default (--max-txn-ops).
inline constexpr std::size_t etcd_most_operations = 128;

/// A lease that is kept alive. Thread: the store's, but for the constants and `is_lost`.
struct etcd_lease_state {
  etcd_lease_state(std::int64_t i, duration g) noexcept : id(i), granted(g) {}

  const std::int64_t id;
  const duration granted;
  /// When it is over unless etcd answers before; the end of time once it is let go.
  std::atomic<time_point> expiry{};
  std::atomic<bool> is_lost = false;
  bool is_let_go = false;
  std::string why_lost;
  event lost;
  event let_go;
};

/// A watch of the user's.
struct etcd_watch_state {
  etcd_watch_state(etcd::gateway& gateway, std::string k, std::string e,
                   std::int64_t from)
      : key(std::move(k)), end(std::move(e)), stream(gateway, key, end, from) {}

  std::string key;
  std::string end;
  etcd::watch_stream stream;
  /// Compacted changes are replaced by a listing, which `next` still has to ask for.
  bool must_list = false;
};

/// Performs operations by requests to the gateway. Operations keep it until they have
/// ended, also beyond the store. Thread: the store's, but for the first group.
class etcd_client {
 public:
  etcd_client(const std::string& endpoints, etcd_store_options options);
  etcd_client(const etcd_client&) = delete;
  etcd_client& operator=(const etcd_client&) = delete;
  ~etcd_client();

  [[nodiscard]] executor& home() noexcept { return gateway_.home(); }
  [[nodiscard]] etcd::gateway& gateway() noexcept { return gateway_; }
  [[nodiscard]] const store_limits& limits() const noexcept { return options_.limits; }
  /// Runs `f` on the store's thread, without waiting for it.
  void run_later(std::function<void()> f);
  /// Returns the name of a key in etcd; a NUL byte of the key is followed by 2.
  [[nodiscard]] std::string name_of(std::string_view key) const;

  task<store_reply> perform(store_request request);
  task<std::shared_ptr<etcd_lease_state>> grant(duration at_least, duration limit);
  task<std::string> await_loss(std::shared_ptr<etcd_lease_state> lease);
  task<void> revoke(std::shared_ptr<etcd_lease_state> lease, duration limit);
  /// Revokes in the background. Thread: the store's.
  void let_go(std::shared_ptr<etcd_lease_state> lease);
  task<etcd_listing> list(std::string prefix, duration limit);
  task<etcd_outcome> commit(etcd_transaction transaction, duration limit);
  task<etcd_changes> next(std::shared_ptr<etcd_watch_state> watch);
  task<void> compact(std::int64_t revision, duration limit);
  task<std::string> server_version(duration limit);

 private:
  using call = etcd::gateway_call;
  /// A range of keys that is watched for those that wait.
  struct shared_watch;
  struct subscription;
  struct wait;

  // Names.
  [[nodiscard]] std::optional<std::string> key_of(std::string_view name) const;
  [[nodiscard]] std::string queue_begin(std::string_view queue) const;
  [[nodiscard]] std::string queue_end(std::string_view queue) const;

  /// The keys that are set have a lease, if the options want one.
  task<store_reply> run_leased(call& c, store_request& r);
  task<void> lease_keys(duration limit);
  [[nodiscard]] std::string put_body(std::string_view name, std::string_view value) const;

  // Operations.
  task<store_reply> run(call& c, store_request& r);
  task<store_reply> set(call& c, store_request& r);
  task<store_reply> multi_set(call& c, store_request& r);
  task<store_reply> read_all(call& c, store_request& r);
  task<store_reply> erase(call& c, store_request& r);
  task<store_reply> compare_set(call& c, store_request& r);
  /// Replaces a value by one made of it, unless another client was faster.
  task<store_reply> change(call& c, store_request& r);
  task<store_reply> push(call& c, store_request& r);
  task<store_reply> try_pop(call& c, store_request& r);
  task<store_reply> queue_size(call& c, store_request& r);
  task<store_reply> keys(call& c, store_request& r);
  task<store_reply> await_keys(call& c, store_request& r);
  task<store_reply> arrive(call& c, store_request& r);

  /// The next value of `change`. Errors: `refused`.
  std::string changed_value(const call& c, const store_request& r,
                            const std::optional<std::string>& before,
                            std::int64_t& number) const;
  task<bool> look(call& c, store_request& r, wait& w, store_reply& reply);
  task<void> look_at_each(call& c, store_request& r, wait& w);
  /// Lifetime: `r` outlives the await.
  task<etcd::range_answer> range(call& c, const etcd::range_request& r);
  task<etcd::transaction_answer> transact(call& c, std::string body, bool may_repeat);
  task<etcd_listing> listing(call& c, std::string begin, std::string end, bool keys_only);

  // Waits.
  std::unique_ptr<subscription> subscribe(const std::string& begin,
                                          const std::string& end,
                                          std::int64_t seen_revision, event& changed);
  task<void> follow(std::shared_ptr<shared_watch> watch);

  // The background.
  task<void> serve_background();
  task<void> keep_alive(std::shared_ptr<etcd_lease_state> lease);
  task<void> revoke_now(std::shared_ptr<etcd_lease_state> lease);
  void lose(etcd_lease_state& lease, std::string why);

  const etcd_store_options options_;
  std::mt19937_64 random_;
  etcd::gateway gateway_;
  /// One operation at a time changes a key, so that this client does not race itself.
  std::map<std::string, std::weak_ptr<turnstile>> key_locks_;
  turnstile leasing_{1};
  std::shared_ptr<etcd_lease_state> keys_lease_;
  std::map<std::string, std::shared_ptr<shared_watch>> watches_;
  scope* background_ = nullptr;
  event closing_;
  event revoked_;
  std::size_t revoking_ = 0;
  std::promise<void> has_closed_;
  task<void> serving_;
  task_root root_;
};

}  // namespace manyworlds::inline v0::detail
