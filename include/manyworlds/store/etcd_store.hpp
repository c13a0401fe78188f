// etcd store: a store in an etcd cluster, with leases, watches and transactions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/store/store.hpp"

namespace manyworlds::inline v0 {

namespace detail {
class etcd_client;
struct etcd_lease_state;
struct etcd_watch_state;
}  // namespace detail

/// Options of a client of etcd.
struct etcd_store_options {
  store_limits limits = {};
  /// All keys of this store lie under it in etcd.
  std::string prefix = "manyworlds/";
  /// The user, where etcd demands one. A token that has expired is renewed.
  std::string user = {};
  std::string password = {};
  /// Files in PEM: the authority that signed the servers' certificates (the system's
  /// authorities if it is empty), and this client's certificate and key. With any of
  /// them an endpoint without a scheme is taken as https.
  std::string ca_file = {};
  std::string certificate_file = {};
  std::string key_file = {};
  /// Not zero: keys that this store sets end that long after it has ended, or has lost
  /// etcd. Those that a transaction sets have the lease that it gives them.
  duration key_lease = duration::zero();
  /// The longest time for one connection to be made, and for one answer. Then the next
  /// endpoint is asked.
  duration connect_limit = std::chrono::milliseconds(1500);
  duration answer_limit = std::chrono::seconds(5);
  /// How long a watch may be silent before etcd is asked whether it still answers.
  duration probe_interval = std::chrono::seconds(5);
  /// The pause after all endpoints have failed; it doubles up to the longest.
  duration first_pause = std::chrono::milliseconds(20);
  duration longest_pause = std::chrono::seconds(1);
  /// Requests in flight at a time; more take turns. Each key that is waited for has a
  /// connection besides, up to 32, and from then on all share one.
  std::size_t connections = 8;
  /// The most bytes that are written in one request, as etcd's --max-request-bytes.
  /// `multi_set` is split by it.
  std::size_t request_bytes = std::size_t{1} << 20;
};

/// One key as etcd has it.
struct etcd_entry {
  std::string key;
  std::string value;
  /// The revision at which the key was made, and that of its last change.
  std::int64_t create_revision = 0;
  std::int64_t mod_revision = 0;
  /// The number of changes since it was made.
  std::int64_t version = 0;
  /// The lease with which it ends; 0 for none.
  std::int64_t lease = 0;
};

/// Keys at one revision.
struct etcd_listing {
  std::int64_t revision = 0;
  std::vector<etcd_entry> entries;  ///< in the order of their keys
};

/// How a compared value stands to the one that is given.
enum class etcd_relation : std::uint8_t { equal, not_equal, greater, less };

/// What a transaction compares.
enum class etcd_target : std::uint8_t {
  value,
  create_revision,
  mod_revision,
  version,
  lease,
};

/// Compares first, then does one of two lists of operations, all in one step.
///
///     mw::etcd_transaction claim;
///     claim.when(mw::etcd_target::create_revision, "leader", 0)  // it is not set
///         .then_set("leader", "node1", lease.id())
///         .otherwise_get("leader");
///     const mw::etcd_outcome claimed = co_await etcd.commit(std::move(claim));
///     if (claimed.succeeded) std::puts("leading");
///
/// etcd takes at most 128 operations, and a key may be set once. A key that is not set
/// has version, revisions and lease 0.
class etcd_transaction {
 public:
  /// Adds a comparison of a number; all must hold. Errors: std::invalid_argument for
  /// `etcd_target::value`.
  etcd_transaction& when(etcd_target target, std::string key, std::int64_t number,
                         etcd_relation relation = etcd_relation::equal);
  /// Adds a comparison of the value; that of a key that is not set fails.
  etcd_transaction& when_value(std::string key, std::string value,
                               etcd_relation relation = etcd_relation::equal);
  // What is done if all comparisons hold.
  /// Sets a key, which ends with the lease if one is given.
  etcd_transaction& then_set(std::string key, std::string value, std::int64_t lease = 0);
  /// Reads a key.
  etcd_transaction& then_get(std::string key);
  /// Erases a key.
  etcd_transaction& then_erase(std::string key);
  // What is done if one does not.
  /// Works as `then_set`.
  etcd_transaction& otherwise_set(std::string key, std::string value,
                                  std::int64_t lease = 0);
  /// Works as `then_get`.
  etcd_transaction& otherwise_get(std::string key);
  /// Works as `then_erase`.
  etcd_transaction& otherwise_erase(std::string key);

 private:
  friend class detail::etcd_client;
  struct comparison {
    etcd_target target;
    etcd_relation relation;
    std::string key;
    std::int64_t number;
    std::string value;
  };
  struct step {
    store_operation what;
    std::string key;
    std::string value;
    std::int64_t lease;
  };
  std::vector<comparison> comparisons_;
  std::vector<step> then_;
  std::vector<step> otherwise_;
};

/// What a transaction did.
struct etcd_outcome {
  /// All comparisons held, so that the first list was done.
  bool succeeded = false;
  std::int64_t revision = 0;
  /// One for each operation that was done: the entry of a get, if the key was set.
  std::vector<std::optional<etcd_entry>> entries;
};

/// One change of a key.
struct etcd_change {
  /// The entry as it is now; of an erased key only the name and the revision.
  etcd_entry entry;
  bool is_erased = false;
};

/// Changes that a watch tells at once, in their order.
struct etcd_changes {
  std::int64_t revision = 0;
  /// etcd has compacted what was to come: `changes` is all that is there now. Keys that
  /// were told before and are not among them are erased.
  bool is_listing = false;
  std::vector<etcd_change> changes;
};

/// Keys live as long as their lease. The store keeps it alive while this object lives,
/// asking three times in its granted time.
///
///     mw::etcd_lease lease = co_await etcd.grant(2s);
///     co_await etcd.set_leased("alive/3", "node3", lease);
///     const std::string why = co_await lease.lost();  // ends only if it is lost
///
/// Destroying it revokes the lease in the background, for at most 500 ms: await `revoke`
/// to know. Thread: any. It may outlive its store.
class etcd_lease {
 public:
  etcd_lease(etcd_lease&& other) noexcept = default;
  etcd_lease& operator=(etcd_lease&& other) noexcept;
  ~etcd_lease();

  [[nodiscard]] std::int64_t id() const noexcept;
  /// Returns the time that etcd granted: asked for 1 s it grants 2 by default.
  [[nodiscard]] duration granted() const noexcept;
  /// Returns whether it is lost: etcd said so, or has not answered for the granted time
  /// by this host's clock. A process that was stopped for longer sees it at once.
  [[nodiscard]] bool is_lost() const noexcept;
  /// Waits until it is lost and returns why. It does not end by a revocation of one's
  /// own. Errors: none.
  task<std::string> lost();
  /// Ends it, and erases its keys. A lease that is gone already is no error. Errors:
  /// store_error (`unreachable`, `protocol`, `refused`).
  task<void> revoke(duration limit = store::default_limit);

 private:
  friend class etcd_store;
  etcd_lease(std::shared_ptr<detail::etcd_client> client,
             std::shared_ptr<detail::etcd_lease_state> state) noexcept
      : client_(std::move(client)), state_(std::move(state)) {}
  void let_go() noexcept;

  std::shared_ptr<detail::etcd_client> client_;
  std::shared_ptr<detail::etcd_lease_state> state_;
};

/// A stream of changes. It goes on from its revision when a connection breaks, at another
/// endpoint if need be.
///
///     mw::etcd_watch members = etcd.watch_prefix("member/");
///     for (;;) {
///       const mw::etcd_changes told = co_await members.next();
///       for (const mw::etcd_change& c : told.changes) use(c);
///     }
///
/// Thread: any, one `next` at a time. It may outlive its store.
class etcd_watch {
 public:
  etcd_watch(etcd_watch&& other) noexcept = default;
  etcd_watch& operator=(etcd_watch&& other) noexcept;
  ~etcd_watch();

  /// Waits for the next changes. While etcd does not answer it waits on, and the store's
  /// `trouble` says why. If it is cancelled no change is lost. Errors: `refused`,
  /// `protocol`.
  task<etcd_changes> next();

 private:
  friend class etcd_store;
  etcd_watch(std::shared_ptr<detail::etcd_client> client,
             std::shared_ptr<detail::etcd_watch_state> state) noexcept
      : client_(std::move(client)), state_(std::move(state)) {}
  void let_go() noexcept;

  std::shared_ptr<detail::etcd_client> client_;
  std::shared_ptr<detail::etcd_watch_state> state_;
};

/// Keeps its keys in etcd, version 3.4 or later, over the JSON gateway that every etcd
/// has at its client port. libcurl is looked for at run time.
///
///     mw::etcd_store store("10.0.0.1:2379,10.0.0.2:2379", {.prefix = "job17/"});
///     mw::world w(rt, store, {.name = "left", .rank = 1, .size = 2});
///     co_await w;
///
/// Endpoints are asked in turn: one that fails is left for the next. Nothing connects
/// before the first operation. Waits are watches, never periodic questions. `multi_get`
/// and `check` ask for at most 128 keys, and `multi_set` for at most 128 keys and
/// `request_bytes`, in one request; longer ones are several, and not one step. A wait
/// that ends at its limit takes up to 500 ms longer to ask which keys are missing.
///
/// Lifetime: it has a thread of its own, so that TLS holds up no link. It may be
/// destroyed while operations are in flight; they end as they would have. Thread: any.
///
/// Errors: those of `store`: `protocol` if what answers is no etcd or one without `/v3`;
/// `refused` for wrong certificates, users or permissions, and if etcd's disk is full.
class etcd_store final : public store {
 public:
  /// Takes "host:port", or "https://host:port", or several parted by commas. Errors:
  /// std::invalid_argument naming what is no endpoint; std::runtime_error if this build
  /// or this machine lacks libcurl or what else is needed, naming it.
  explicit etcd_store(const std::string& endpoints, etcd_store_options options = {});
  /// Waits up to 500 ms for leases that are being revoked.
  ~etcd_store() override;

  [[nodiscard]] std::string address() const override;
  [[nodiscard]] std::string trouble() const override;
  task<store_reply> perform(store_request request) override;

  /// Asks for a lease of at least this time, in whole seconds. Errors: `refused`.
  task<etcd_lease> grant(duration at_least, duration limit = default_limit);
  /// Sets a key that ends with the lease, and returns the revision.
  task<std::int64_t> set_leased(std::string key, std::string value,
                                const etcd_lease& lease, duration limit = default_limit);
  /// Returns the key's entry, or nothing if it is not set.
  task<std::optional<etcd_entry>> entry(std::string key, duration limit = default_limit);
  /// Returns all keys that begin with the prefix.
  task<etcd_listing> list(std::string prefix, duration limit = default_limit);
  /// Does all of a transaction in one request. Errors: `unreachable` with
  /// `may_have_happened` if the connection is lost before the answer; `refused` if etcd
  /// does not take it.
  task<etcd_outcome> commit(etcd_transaction transaction, duration limit = default_limit);
  /// Tells the changes of a key, or of all keys that begin with a prefix, from this
  /// revision on; 0 means from when the first `next` is awaited.
  [[nodiscard]] etcd_watch watch(std::string key, std::int64_t from_revision = 0);
  /// Works as `watch`, for all keys that begin with the prefix.
  [[nodiscard]] etcd_watch watch_prefix(std::string prefix,
                                        std::int64_t from_revision = 0);
  /// Lets etcd forget what was before this revision, for all its clients.
  task<void> compact(std::int64_t revision, duration limit = default_limit);
  /// Returns the version of the server that answers, such as "3.4.23".
  task<std::string> server_version(duration limit = default_limit);

 private:
  std::shared_ptr<detail::etcd_client> client_;
};

}  // namespace manyworlds::inline v0
