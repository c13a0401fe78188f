// Neighbour: the memory that one link shares with its peer, if both live on the same
// host.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "link/beat_line.hpp"
#include "link/data_channel.hpp"
#include "link/death_notices.hpp"
#include "link/link.hpp"
#include "link/meeting_place.hpp"
#include "link/process_watch.hpp"
#include "link/robust_word.hpp"
#include "link/slot_register.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

class neighbourhood;
class shared_link;

/// The side that accepted the link invites over it; the side that dialled visits and
/// reports the outcome. If they have met, the link has shared memory from then on, and
/// its worlds take slots there. Otherwise, and until that is known, they use tcp. A
/// part of a link. Thread: the service reactor.
class neighbour {
 public:
  neighbour(link& l, neighbourhood& all) noexcept : link_(l), all_(all) {}
  neighbour(const neighbour&) = delete;
  neighbour& operator=(const neighbour&) = delete;
  ~neighbour();

  /// Sends the invitation, the first message of a link that was accepted.
  void invite();

  // Frames of the peer. Errors: wire_error.
  void take_invitation(std::span<const std::byte> body);
  void take_outcome(std::span<const std::byte> body);
  void take_slot(std::span<const std::byte> body);
  void take_returns(std::span<const std::byte> body);
  void take_ceded(std::span<const std::byte> body);

  /// Returns the words that a visitor must know, or null if none is expected.
  [[nodiscard]] const invitation* expected() const noexcept;
  /// Keeps what a visitor brought until the peer confirms. Precondition: expected().
  void receive(shared_parts parts);

  /// Returns whether memory is shared, once that is known or at `deadline`.
  [[nodiscard]] task<bool> settled(time_point deadline);
  [[nodiscard]] bool is_local() const noexcept { return shared_ != nullptr; }
  /// Says whether a local peer's memory is read.
  [[nodiscard]] bool is_readable() const noexcept;
  /// Takes a slot for a world and tells the peer the world and the rank. Returns an
  /// empty lease, logged once, if no slot or no memory is left.
  [[nodiscard]] slot_lease lend(std::uint64_t world_id, rank_t rank);
  /// Beats in the shared memory, and returns the peer's signs if it has beaten since
  /// the last call. Precondition: is_local().
  [[nodiscard]] std::optional<beat_signs> exchange_beats(
      const beat_signs& ours) noexcept {
    MW_ASSERT(beats_ && shared_, "a local link has beat lines");
    beats_->beat(ours);
    return beats_->look();
  }
  /// Tells the peer which slots were given back here.
  void return_slots();

  /// Releases our word: the end of this process is no longer reported to the peer.
  void say_goodbye() noexcept { life_.reset(); }
  /// Called when the link is over; idempotent. Lifetime: the memory stays while a slot
  /// is held.
  void part() noexcept;

 private:
  enum class stage : unsigned char { fresh, expecting, visiting, known };

  [[nodiscard]] static task<void> visit(std::shared_ptr<link> l, invitation words);
  void share(shared_parts parts);
  void settle() noexcept;
  /// Cedes some of our free slots to a peer that runs short.
  void share_what_is_left();
  void tell_outcome(bool met, bool is_elsewhere, const std::string& why_not);
  void note_refusal(bool is_elsewhere, const std::string& why_not);

  void watch(std::unique_ptr<process_watch> process);
  [[nodiscard]] static task<void> until_process_ends(
      std::shared_ptr<link> l, std::unique_ptr<process_watch> process);
  [[nodiscard]] static task<void> mourn(std::shared_ptr<link> l, const char* noticed_by);

  link& link_;
  neighbourhood& all_;
  stage stage_ = stage::fresh;
  event settled_;
  invitation words_;
  /// What a visitor brought, until it confirms over the link.
  std::unique_ptr<shared_parts> visitor_;

  std::shared_ptr<shared_link> shared_;
  std::shared_ptr<slot_register> slots_;
  std::optional<beat_exchange> beats_;
  bool said_full_ = false;
  death_notices::ticket death_ = death_notices::ticket::none;
  /// Released before the memory.
  std::unique_ptr<held_life> life_;
};

}  // namespace manyworlds::inline v0::detail::shm
