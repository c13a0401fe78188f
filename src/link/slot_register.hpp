// Slot register: which slots of a shared link are in use, as one side knows it.
#pragma once

#include <atomic>
#include <optional>

#include "doorbell.hpp"
#include "manyworlds/link/data_channel.hpp"

namespace manyworlds::inline v0::shm {

/// Each slot is one side's to hand out, so that both may do it at once: at first the even
/// ones side 0's, the odd ones side 1's. The side that sees the other run short cedes
/// some that are free, which is safe as messages come in order: the peer has heard before
/// that they were given back, and who cedes hands them out no more.
///
/// A slot is used again when both sides have given it back; what the peer says of slots
/// is checked (law 11), and a lie throws wire_error.
///
/// On the service reactor, but for `give_back`.
class slot_register final : public slot_lender {
 public:
  explicit slot_register(int side) noexcept;

  /// The lowest slot of ours that nobody uses; nothing if both use all.
  [[nodiscard]] std::optional<unsigned> find_free() const noexcept;
  /// Both sides use it from now on: one of ours.
  void take(unsigned slot) noexcept;
  /// The peer hands one of its own to us, who give it back.
  void take_from_peer(unsigned slot);
  /// The peer uses these no more.
  void peer_gave_back(const slot_set& slots);
  /// The peer has fewer than half as many left as we: gives those that are its own from
  /// now on, so that both have the same. None else. After what `collect_returns` gave was
  /// sent.
  [[nodiscard]] slot_set cede() noexcept;
  /// The peer has ceded these.
  void take_ceded(const slot_set& slots);

  void give_back(unsigned slot) noexcept override;
  /// What was given back here since the last call, for the peer to know.
  [[nodiscard]] slot_set collect_returns() noexcept;

 private:
  [[nodiscard]] bool is_free(unsigned slot) const noexcept {
    return !ours_.contains(slot) && !theirs_.contains(slot);
  }

  [[nodiscard]] slot_set left(bool own) const noexcept;

  /// To hand out.
  slot_set own_;
  /// Used here, and there.
  slot_set ours_;
  slot_set theirs_;
  std::array<std::atomic<std::uint64_t>, slot_set::words> returned_{};
};

}  // namespace manyworlds::inline v0::shm
