// Join queue: the peers that wait for an acceptor of one service, as a store holds them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/store/store.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

/// A peer that waits to join: its own number, and how it is joined to a world
/// (`join_record`).
struct join_entry {
  join_entry(std::uint64_t number, std::string joins)
      : id(number), record(std::move(joins)) {}

  std::uint64_t id;
  std::string record;
};

/// The queue as it stands under one key, written by compare_set only. Peers that wait
/// enter it; any number of acceptors take from its front, so that each gets its own.
struct join_entries {
  /// Differs in each value, so that a writer knows whether the stored value is its own.
  std::uint64_t mark = 0;
  std::vector<join_entry> all;

  [[nodiscard]] bool holds(const join_entry& entry) const noexcept;
  void remove(std::uint64_t id) noexcept;
  [[nodiscard]] std::string encode() const;
  /// Errors: wire_error.
  [[nodiscard]] static join_entries decode(const std::string& text);
};

/// A service's keys in a store: the queue, and a bell that is set after each entry.
/// A taker erases the bell before it reads the queue, so that no later entry goes
/// unheard; between two reads it waits for the key. A member that dies may leave an
/// entry without a bell, or a bell erased and nothing taken. The periodic checks of the
/// others make up for it.
///
/// A taker leaves a notice for each peer before it takes it. So a peer soon asks
/// whether it still stands in the queue, and is not left to an acceptor that has died.
///
/// Thread: the runtime's reactor. Errors: the operations throw store_error.
class join_queue {
 public:
  /// Entries beyond it drop the oldest. A live peer finds its entry missing and enters
  /// again.
  static constexpr std::size_t most = 1024;
  /// How long takers rely on the bell.
  static constexpr duration check_period = std::chrono::seconds(10);

  join_queue(runtime_core& rt, store& st, service_name service);

  /// Returns the store that holds the queue.
  [[nodiscard]] const store& place() const noexcept { return store_; }
  /// Enters a peer in place of an older entry of the same number.
  [[nodiscard]] task<void> enter(join_entry entry);
  /// Returns whether that entry stands in the queue; rings once more if it does.
  [[nodiscard]] task<bool> holds(join_entry entry);
  /// Waits until a taker has left a notice for the peer, and erases it. The taker may
  /// have lost the peer to another, or may not have got to taking it.
  [[nodiscard]] task<void> await_notice(std::uint64_t id);
  /// Erases the notice of a peer that has not done so, since it is gone.
  [[nodiscard]] task<void> erase_notice(std::uint64_t id);
  /// Waits until a peer is there, and takes up to `at_most`. Precondition: `at_most` >
  /// 0.
  [[nodiscard]] task<std::vector<join_entry>> take(std::size_t at_most);
  /// Erases the keys if no peer waits.
  [[nodiscard]] task<void> erase_if_empty();

 private:
  [[nodiscard]] join_entries read(const std::string& text) const;
  [[nodiscard]] task<std::vector<join_entry>> take_now(std::size_t at_most);
  [[nodiscard]] task<void> ring_for_others();
  [[nodiscard]] task<void> leave_notices(const std::vector<join_entry>& taken);
  [[nodiscard]] std::string notice_key(std::uint64_t id) const;

  runtime_core& runtime_;
  store& store_;
  const std::string list_key_;
  const std::string bell_key_;
  const std::string notice_prefix_;
};

}  // namespace manyworlds::inline v0::detail
