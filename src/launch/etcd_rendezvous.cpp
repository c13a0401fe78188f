// Rendezvous over etcd: the coordinator is elected by a lease.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "launch/rendezvous_backends.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/store/etcd_store.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// etcd grants at least 2 s with its default timing, so asking for less gains nothing.
constexpr duration seat_time = std::chrono::seconds(2);
/// How long the last round is kept for a coordinator that follows.
constexpr duration record_time = std::chrono::seconds(60);
/// The pause after a watch that etcd has refused.
constexpr duration watch_pause = std::chrono::seconds(1);
const char* const seat_key = "coordinator";
const char* const round_key = "round";
const char* const closed_key = "closed";

/// Waits until the key of the seat that was made at that revision is gone, or made anew.
/// It is written once. Errors: store_error.
task<void> until_seat_is_free(etcd_store& st, std::int64_t made) {
  etcd_watch seat = st.watch(seat_key, made + 1);
  for (;;) {
    const etcd_changes told = co_await seat.next();
    // After a compaction there is a listing of what stands.
    const bool stands = told.is_listing && !told.changes.empty() &&
                        told.changes.front().entry.create_revision == made;
    if (!stands) co_return;
  }
}

/// The key of the seat, made under a lease. All writes compare the revision at which it
/// was made: after another coordinator has made it anew nothing of ours is written (E15).
class etcd_seat final : public coordinator_seat {
 public:
  etcd_seat(etcd_store& st, etcd_lease seat, etcd_lease record, std::int64_t made)
      : store_(st), seat_(std::move(seat)), record_(std::move(record)), made_(made) {}

  std::string name() const override { return std::to_string(seat_.id()); }

  /// Puts the round that it finds under its own lease: that of the coordinator before
  /// ends.
  task<std::string> read() override {
    const std::optional<etcd_entry> found = co_await store_.entry(round_key);
    if (!found) co_return std::string();
    co_await publish(found->value);
    co_return found->value;
  }
  task<bool> publish(std::string round_json) override {
    etcd_transaction write = ours();
    write.then_set(round_key, std::move(round_json), record_.id());
    const etcd_outcome done = co_await store_.commit(std::move(write));
    co_return done.succeeded;
  }
  /// The mark has no lease: a run that was closed stays closed.
  task<bool> close() override {
    etcd_transaction write = ours();
    write.then_set(closed_key, "closed");
    const etcd_outcome done = co_await store_.commit(std::move(write));
    co_return done.succeeded;
  }
  task<void> lost() override { co_await when_any(seat_.lost(), until_freed()); }

 private:
  /// An agent that saw us die, as when its connection was cut, has freed the seat for
  /// another. Without this there would be two until one of them writes.
  [[nodiscard]] task<void> until_freed() {
    for (;;) {
      try {
        co_await until_seat_is_free(store_, made_);
        co_return;
      } catch (const store_error&) {
        // The lease is kept or lost beside this.
      }
      co_await sleep_for(watch_pause);
    }
  }
  [[nodiscard]] etcd_transaction ours() const {
    etcd_transaction write;
    write.when(etcd_target::create_revision, seat_key, made_);
    return write;
  }

  etcd_store& store_;
  etcd_lease seat_;
  etcd_lease record_;
  const std::int64_t made_;
};

class etcd_backend final : public rendezvous_backend {
 public:
  explicit etcd_backend(const rendezvous_options& options)
      : store_(options.endpoint, options_of(options)) {}

  store& meeting_place() override { return store_; }
  task<std::unique_ptr<coordinator_seat>> take_seat(const node_description&) override;
  task<bool> is_closed() override {
    const std::optional<etcd_entry> mark = co_await store_.entry(closed_key);
    co_return mark.has_value();
  }
  task<void> coordinator_died(std::string seat) override;
  duration patience() const noexcept override { return std::chrono::seconds(60); }
  bool has_successors() const noexcept override { return true; }

 private:
  [[nodiscard]] static etcd_store_options options_of(const rendezvous_options& options) {
    etcd_store_options how;
    how.prefix = fmt::format("manyworlds/rendezvous/{}/", options.run_id);
    // Agents that were killed leave nothing for good (E9).
    how.key_lease = record_time;
    return how;
  }
  task<std::unique_ptr<coordinator_seat>> try_to_take();

  etcd_store store_;
};

task<std::unique_ptr<coordinator_seat>> etcd_backend::take_seat(const node_description&) {
  for (;;) {
    const std::optional<etcd_entry> holder = co_await store_.entry(seat_key);
    if (holder) {
      co_await until_seat_is_free(store_, holder->create_revision);
      continue;
    }
    std::unique_ptr<coordinator_seat> seat = co_await try_to_take();
    if (seat) co_return seat;
  }
}

/// Of all that try at once etcd lets one make the key (E7).
task<std::unique_ptr<coordinator_seat>> etcd_backend::try_to_take() {
  etcd_lease seat = co_await store_.grant(seat_time);
  etcd_lease record = co_await store_.grant(record_time);
  etcd_transaction claim;
  claim.when(etcd_target::create_revision, seat_key, 0)
      .then_set(seat_key, std::to_string(seat.id()), seat.id());
  const etcd_outcome done = co_await store_.commit(std::move(claim));
  if (!done.succeeded) co_return nullptr;
  co_return std::make_unique<etcd_seat>(store_, std::move(seat), std::move(record),
                                        done.revision);
}

/// Frees the seat of a coordinator that is known to be dead. Its lease would take
/// seconds.
task<void> etcd_backend::coordinator_died(std::string seat) {
  if (seat.empty()) co_return;
  etcd_transaction free;
  free.when_value(seat_key, seat).then_erase(seat_key);
  co_await store_.commit(std::move(free));
}

}  // namespace

std::unique_ptr<rendezvous_backend> make_etcd_backend(runtime&,
                                                      const rendezvous_options& options) {
  return std::make_unique<etcd_backend>(options);
}

}  // namespace manyworlds::inline v0::detail
