// Slot pool: one side's record of the shm slots of a link that are in use.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "link/slot_set.hpp"

namespace manyworlds::inline v0::detail::shm {

/// One side hands out each slot, so that both may do it at once: at first side 0 the
/// even ones, side 1 the odd ones. A side that sees the other run short cedes some free
/// ones. That is safe since messages come in order: the peer has heard before that they
/// were given back, and the ceding side no longer hands them out.
///
/// A slot is used again when both sides have given it back. Errors: what the peer says
/// of slots is checked (law 11), and wire_error is thrown if it is wrong.
///
/// Thread: the service reactor, except for `give_back`.
class slot_pool {
 public:
  explicit slot_pool(int side) noexcept;

  /// Returns the lowest free slot that this side hands out, or nothing.
  [[nodiscard]] std::optional<unsigned> find_free() const noexcept;
  /// Marks a slot as used by both sides. Precondition: it is free.
  void take(unsigned slot) noexcept;
  /// Takes a slot that the peer hands out. Errors: wire_error.
  void take_from_peer(unsigned slot);
  /// Notes that the peer no longer uses these. Errors: wire_error.
  void peer_gave_back(const slot_set& slots);
  /// Cedes slots to a peer that has fewer than half as many left as we, so that both
  /// have the same; otherwise none. Precondition: what `collect_returns` gave was sent.
  [[nodiscard]] slot_set cede() noexcept;
  /// Takes slots that the peer has ceded. Errors: wire_error.
  void take_ceded(const slot_set& slots);

  /// Notes that this side no longer uses the slot. Thread: any.
  void give_back(unsigned slot) noexcept;
  /// Returns the slots given back here since the last call, to tell the peer.
  [[nodiscard]] slot_set collect_returns() noexcept;

 private:
  [[nodiscard]] bool is_free(unsigned slot) const noexcept {
    return !ours_.contains(slot) && !theirs_.contains(slot);
  }

  [[nodiscard]] slot_set left(bool own) const noexcept;

  /// Slots that this side hands out.
  slot_set own_;
  /// Slots that this side and the peer use.
  slot_set ours_;
  slot_set theirs_;
  std::array<std::atomic<std::uint64_t>, slot_set::words> returned_{};
};

}  // namespace manyworlds::inline v0::detail::shm
