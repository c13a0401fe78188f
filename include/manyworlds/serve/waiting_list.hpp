// Waiting list: those who wait for an acceptor of one service, as they stand in the
// store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/store/store.hpp"
#include "manyworlds/world/runtime_core.hpp"

namespace manyworlds::inline v0 {

/// What is accepted and connected to: 1 to 46 bytes, so that the names of its worlds can
/// be told apart behind it.
using service_name = inline_text<46>;

/// One who waits: its own number, and how it is joined to a world (`join_record`).
struct waiting_peer {
  waiting_peer(std::uint64_t number, std::string joins)
      : id(number), record(std::move(joins)) {}

  std::uint64_t id;
  std::string record;
};

/// The list as it stands under one key, written by compare_set only: entered by those who
/// wait, taken from the front by any number of acceptors, so that each gets its own.
struct waiting_peers {
  /// Another one in each value, so that whoever has stored one knows that it was him.
  std::uint64_t mark = 0;
  std::vector<waiting_peer> all;

  [[nodiscard]] bool holds(const waiting_peer& who) const noexcept;
  void remove(std::uint64_t id) noexcept;
  [[nodiscard]] std::string encode() const;
  /// Throws wire_error.
  [[nodiscard]] static waiting_peers decode(const std::string& text);
};

/// A service's two keys in a store: the list, and a bell that is set behind each entry.
/// Who takes erases the bell before he looks, so that no entry behind his look goes
/// unheard; in between he waits for the key. What a member that dies leaves undone (an
/// entry without a bell, a bell erased and nothing taken) is made good by the looks of
/// the others.
///
/// Lives on the runtime's reactor; the operations throw store_error.
class waiting_list {
 public:
  /// Entries beyond drop the oldest: who is alive finds that it stands there no more and
  /// enters again.
  static constexpr std::size_t most = 1024;
  /// How long those who take rely on the bell.
  static constexpr duration look_again = std::chrono::seconds(10);

  waiting_list(runtime_core& rt, store& st, service_name service);

  /// The store that it stands in.
  [[nodiscard]] const store& place() const noexcept { return store_; }
  /// In place of an older entry of the same number.
  [[nodiscard]] task<void> enter(waiting_peer who);
  /// Whether that entry stands there; rings once more if it does.
  [[nodiscard]] task<bool> holds(waiting_peer who);
  /// Waits until there is somebody, and takes up to `at_most`.
  [[nodiscard]] task<std::vector<waiting_peer>> take(std::size_t at_most);
  /// Erases the keys if nobody waits.
  [[nodiscard]] task<void> tidy();

 private:
  [[nodiscard]] waiting_peers read(const std::string& text) const;
  [[nodiscard]] task<std::vector<waiting_peer>> take_now(std::size_t at_most);
  [[nodiscard]] task<void> ring_for_others();

  runtime_core& runtime_;
  store& store_;
  const std::string list_;
  const std::string bell_;
};

}  // namespace manyworlds::inline v0
