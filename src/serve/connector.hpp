// Connector: enters the join queue until an acceptor takes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/serve/connect.hpp"
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"
#include "serve/join_queue.hpp"

namespace manyworlds::inline v0::detail {

/// Receives the record of a connector's world. If the connector's own store does not
/// answer, that world cannot be formed; `trouble` reports this store's trouble in its
/// place.
class desk_store final : public store {
 public:
  explicit desk_store(const store& entered_in) : entered_in_(entered_in) {}

  [[nodiscard]] std::string address() const override { return entered_in_.address(); }
  [[nodiscard]] std::string trouble() const override { return entered_in_.trouble(); }
  [[nodiscard]] task<store_reply> perform(store_request request) override {
    return under_.perform(std::move(request));
  }

 private:
  const store& entered_in_;
  memory_store under_;
};

/// One connector of a service. It enters the join queue when it forms a world, and
/// again when no world comes of it.
class connector {
 public:
  static constexpr std::string_view name = "connect";

  /// Errors: world_error (`invalid_argument`).
  connector(runtime& rt, store& st, const connect_options& options);
  connector(const connector&) = delete;
  connector& operator=(const connector&) = delete;
  ~connector();

  /// Returns the next world, not yet formed. Precondition: its predecessor is gone.
  [[nodiscard]] world describe();
  [[nodiscard]] task<void> form(world& w);
  /// Erases what acceptors have left for us and we have not read. Called also at the end.
  [[nodiscard]] task<void> forget_notices();

 private:
  /// Times between two checks whether the entry still stands, doubled each time.
  static constexpr duration first_check = std::chrono::milliseconds(900);
  static constexpr duration longest_check = std::chrono::seconds(5);
  static_assert(first_check < longest_check);
  /// Time that an acceptor has, after its notice, to take us and to begin the world;
  /// doubled each time that none comes of it. An acceptor on a busy machine that needs
  /// longer finds us in the queue once more.
  static constexpr duration first_patience = std::chrono::milliseconds(300);
  /// An acceptor that dies right after taking a peer is not worth a warning.
  static constexpr int told_when_taken = 2;

  [[nodiscard]] task<void> stay_announced();
  [[nodiscard]] task<void> heed_notices();
  [[nodiscard]] task<void> until_check();
  /// Returns when to check again.
  [[nodiscard]] task<duration> announce(join_entry self, bool is_new);
  void note_waiting();
  void note_taken_in_vain();
  void note_store(const char* trouble);

  runtime& runtime_;
  const connect_options options_;
  const std::uint64_t id_;
  const world_options world_options_;
  const std::string key_;
  join_queue queue_;
  /// Made anew for each world.
  std::optional<desk_store> desk_;
  duration pause_ = first_check;
  duration patience_ = first_patience;
  time_point check_at_{};
  bool is_missing_ = false;
  /// An acceptor's notice has come: the next check is due soon.
  event noticed_;
  /// We stand in the queue, so a notice may come.
  event entered_;
  /// We have stood in the queue, so notices may have been left for us.
  bool was_announced_ = false;
  /// Applies to the world that is being formed.
  bool is_waiting_told_ = false;
  /// Counts how often the entry was gone while one world was being formed.
  int taken_in_vain_ = 0;
  bool store_answers_ = true;
};

}  // namespace manyworlds::inline v0::detail
