// Acceptor: takes peers from the join queue and holds their worlds.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/serve/accept.hpp"
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"
#include "serve/join_queue.hpp"
#include "serve/supervision.hpp"

namespace manyworlds::inline v0::detail {

class accepted_peer;

/// One acceptor of a service.
class acceptor {
 public:
  /// Throws world_error (`invalid_argument`).
  acceptor(runtime& rt, store& st, const accept_options& options);
  acceptor(const acceptor&) = delete;
  acceptor& operator=(const acceptor&) = delete;

  /// Waits for room and for peers, and takes them. Returns none once it is to stop.
  [[nodiscard]] task<std::vector<join_entry>> next(std::stop_token until);
  [[nodiscard]] std::unique_ptr<accepted_peer> meet(join_entry entry);
  /// Erases the service's keys from the store if no peer waits there.
  [[nodiscard]] task<void> close();

 private:
  friend class accepted_peer;

  [[nodiscard]] task<std::vector<join_entry>> take();
  [[nodiscard]] bool is_met(const join_entry& entry) const noexcept;
  void note_store(const char* trouble);
  /// Clears up after a peer that no world was formed with.
  [[nodiscard]] task<void> forget(const join_entry& entry);

  runtime& runtime_;
  const accept_options options_;
  const std::string name_;  ///< for the log
  join_queue queue_;
  back_off pause_;
  std::vector<const accepted_peer*> met_;
  event has_room_;
  bool store_answers_ = true;
};

/// The store through which one peer's world is formed. It holds the record that the
/// peer left in the join queue, for one try. A peer that this try does not meet
/// enters the queue again.
class single_try_store final : public store {
 public:
  explicit single_try_store(std::string peer_key) : peer_key_(std::move(peer_key)) {}

  [[nodiscard]] std::string address() const override { return "the join queue"; }
  [[nodiscard]] task<store_reply> perform(store_request request) override;

 private:
  const std::string peer_key_;
  memory_store under_;
  std::atomic<bool> was_read_{false};
};

/// A peer that was taken, and the world with it. It occupies one place of its acceptor.
class accepted_peer {
 public:
  accepted_peer(acceptor& by, join_entry entry);
  accepted_peer(const accepted_peer&) = delete;
  accepted_peer& operator=(const accepted_peer&) = delete;
  ~accepted_peer();

  [[nodiscard]] task<void> form();
  [[nodiscard]] world& met() noexcept { return world_; }
  [[nodiscard]] bool is(const join_entry& entry) const noexcept {
    return entry.id == entry_.id && entry.record == entry_.record;
  }
  [[nodiscard]] bool is_of_it(const failure& f) const noexcept {
    return world_ && f.world_instance == access::core(world_).instance();
  }
  /// Notes that the body ended by an exception that is no failure of its world, and
  /// breaks the world. Precondition: called inside the handler that caught the
  /// exception.
  [[nodiscard]] failure note_body_threw();
  [[nodiscard]] bool is_runtime_stopping() const noexcept {
    return acceptor_.runtime_.is_stopping();
  }
  /// Leaves the world, or breaks it if it `failed`. Nothing of the world is left
  /// afterwards.
  [[nodiscard]] task<void> part(failure failed);

 private:
  acceptor& acceptor_;
  const join_entry entry_;
  const world_options options_;
  single_try_store store_;
  world world_;
};

}  // namespace manyworlds::inline v0::detail
