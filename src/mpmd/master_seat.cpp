#include "mpmd/master_seat.hpp"

#include <algorithm>
#include <utility>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "mpmd/etcd_trouble.hpp"

namespace manyworlds::inline v0::detail {

namespace {

const char* const seat_key = "seat";
/// The pause after a watch that etcd has refused.
constexpr duration watch_pause = std::chrono::seconds(1);

/// Gives errors of the store as those of a context.
template <class T>
task<T> with_context_errors(task<T> asking) {
  std::optional<context_error> failed;
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(asking);
      co_return;
    } else {
      co_return co_await std::move(asking);
    }
  } catch (const store_error& e) {
    failed = context_error_of(e);
  }
  throw context_error(*failed);
}

/// Says whether these changes are a listing in which the seat is held as before.
bool shows(const etcd_changes& told, const seat_holder& of) {
  return told.is_listing &&
         std::any_of(told.changes.begin(), told.changes.end(), [&](const etcd_change& c) {
           return c.entry.key == seat_key && c.entry.create_revision == of.claim;
         });
}

}  // namespace

task<std::optional<seat_holder>> host_master_seat::holder() { co_return std::nullopt; }
task<bool> host_master_seat::take(std::string) { co_return true; }
task<void> host_master_seat::until_free(seat_holder) { co_return; }
task<void> host_master_seat::free(seat_holder) { co_return; }
task<std::string> host_master_seat::lost() {
  co_await never_.wait();
  co_return "";
}
task<void> host_master_seat::leave() { co_return; }

task<std::optional<seat_holder>> etcd_master_seat::holder() {
  auto asking = with_context_errors(store_.entry(seat_key, limit_));
  const std::optional<etcd_entry> found = co_await std::move(asking);
  if (!found) co_return std::nullopt;
  co_return seat_holder{found->value, found->create_revision};
}

task<bool> etcd_master_seat::take(std::string address) {
  return with_context_errors(try_to_take(std::move(address)));
}

/// Of all that try at once etcd lets one make the key.
task<bool> etcd_master_seat::try_to_take(std::string address) {
  mine_.reset();
  lease_.reset();
  etcd_lease granted = co_await store_.grant(lease_time_, limit_);
  etcd_transaction claim;
  claim.when(etcd_target::create_revision, seat_key, 0)
      .then_set(seat_key, address, granted.id());
  // Without an answer the lease is revoked on the way out, and takes the key along.
  const etcd_outcome done = co_await store_.commit(std::move(claim), limit_);
  if (!done.succeeded) co_return false;
  lease_ = std::move(granted);
  mine_ = seat_holder{std::move(address), done.revision};
  co_return true;
}

task<void> etcd_master_seat::until_free(seat_holder of) {
  for (;;) {
    try {
      const std::optional<etcd_entry> found = co_await store_.entry(seat_key, limit_);
      if (!found || found->create_revision != of.claim) co_return;
      // It is written once: whatever changes it ends this taking. Where etcd has
      // compacted since, the watch begins with a listing, which is no change.
      etcd_watch watch = store_.watch(seat_key, found->mod_revision + 1);
      while (shows(co_await watch.next(), of)) {}
      continue;
    } catch (const store_error&) {
      // The seat stands as long as etcd does not say otherwise.
    }
    co_await sleep_for(watch_pause);
  }
}

/// Erases the key and not the lease, since only that can be made to depend on the taking.
/// The lease of a dead master ends by itself.
task<void> etcd_master_seat::free(seat_holder dead) {
  etcd_transaction freeing;
  freeing.when(etcd_target::create_revision, seat_key, dead.claim).then_erase(seat_key);
  auto asking = with_context_errors(store_.commit(std::move(freeing), limit_));
  co_await std::move(asking);
}

task<std::string> etcd_master_seat::until_taken() {
  co_await until_free(*mine_);
  co_return "another master has freed or taken it";
}

task<std::string> etcd_master_seat::lost() {
  if (!mine_) co_return "it was not taken";
  auto [lease, key] = co_await when_any(lease_->lost(), until_taken());
  co_return lease ? "its lease is lost: " + *lease : *key;
}

task<void> etcd_master_seat::leave() {
  if (!lease_) co_return;
  mine_.reset();
  etcd_lease lease = std::move(*std::exchange(lease_, std::nullopt));
  auto asking = with_context_errors(lease.revoke(limit_));
  co_await std::move(asking);
}

}  // namespace manyworlds::inline v0::detail
