// Slot register: which slots of a shared link are in use, as one side knows it.
#pragma once

#include <atomic>
#include <optional>

#include "doorbell.hpp"
#include "manyworlds/link/data_channel.hpp"

namespace manyworlds::inline v0::shm {

/// Each side hands out the slots of its own parity: even ones side 0, odd ones side 1, so
/// that both may do it at once. A slot is used again when both sides have given it back;
/// what the peer says of slots is checked (law 11), and a lie throws wire_error.
///
/// On the service reactor, but for `give_back`.
class slot_register final : public slot_lender {
 public:
  explicit slot_register(int side) noexcept : side_(static_cast<unsigned>(side)) {}

  /// The lowest slot of ours that nobody uses; nothing if both use all.
  [[nodiscard]] std::optional<unsigned> find_free() const noexcept;
  /// Both sides use it from now on: one of ours.
  void take(unsigned slot) noexcept;
  /// The peer hands one of its own to us, who give it back.
  void take_from_peer(unsigned slot);
  /// The peer uses these no more.
  void peer_gave_back(const slot_set& slots);

  void give_back(unsigned slot) noexcept override;
  /// What was given back here since the last call, for the peer to know.
  [[nodiscard]] slot_set collect_returns() noexcept;

 private:
  [[nodiscard]] bool is_free(unsigned slot) const noexcept {
    return !ours_.contains(slot) && !theirs_.contains(slot);
  }

  const unsigned side_;
  slot_set ours_;
  slot_set theirs_;
  std::array<std::atomic<std::uint64_t>, slot_set::words> returned_{};
};

}  // namespace manyworlds::inline v0::shm
