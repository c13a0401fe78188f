// Local peer: the memory that one link shares with its peer, if both live on the same
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
#include "link/liveness_futex.hpp"
#include "link/pairing.hpp"
#include "link/process_watch.hpp"
#include "link/slot_pool.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

class local_discovery;
class shared_link;

/// The side that accepted the link sends nonces over it; the side that dialled requests
/// pairing and reports the outcome. If they have paired, the link has shared memory from
/// then on, and its worlds take slots there. Otherwise, and until that is known, they use
/// tcp. A part of a link. Thread: the service reactor.
class local_peer {
 public:
  local_peer(link& l, local_discovery& discovery) noexcept
      : link_(l), discovery_(discovery) {}
  local_peer(const local_peer&) = delete;
  local_peer& operator=(const local_peer&) = delete;
  ~local_peer();

  /// Sends the nonces, the first message of a link that was accepted.
  void begin_pairing();

  // Frames of the peer. Errors: wire_error.
  void take_nonces(std::span<const std::byte> body);
  void take_outcome(std::span<const std::byte> body);
  void take_slot(std::span<const std::byte> body);
  void take_returns(std::span<const std::byte> body);
  void take_ceded(std::span<const std::byte> body);

  /// Returns the nonces that a pairing request must prove, or null if none is expected.
  [[nodiscard]] const pairing_nonces* expected_nonces() const noexcept;
  /// Keeps what a request brought until the peer confirms. Precondition:
  /// expected_nonces().
  void keep_request(shared_parts parts);

  /// Returns whether memory is shared. It waits until that is known, or returns at
  /// `deadline` what is known then. Precondition: the link is up.
  [[nodiscard]] task<bool> paired(time_point deadline);
  [[nodiscard]] bool shares_memory() const noexcept { return shared_ != nullptr; }
  /// Says whether large messages are read from a local peer's memory, not copied through
  /// the shared memory.
  [[nodiscard]] bool is_readable() const noexcept;
  /// Takes a slot for a world, and tells the peer that member `rank` speaks there.
  /// Returns an empty slot, logged once, if no slot or no memory is left: the world uses
  /// tcp.
  [[nodiscard]] shm_slot allocate_slot(std::uint64_t world_id, rank_t rank);
  /// Beats in the shared memory, and returns the peer's signs if it has beaten since
  /// the last call. Precondition: shares_memory().
  [[nodiscard]] std::optional<beat_signs> exchange_beats(
      const beat_signs& ours) noexcept {
    MW_ASSERT(beats_ && shared_, "a local link has beat lines");
    beats_->beat(ours);
    return beats_->poll();
  }
  /// Tells the peer which slots were given back here.
  void return_slots();

  /// Releases our futex: the end of this process is no longer reported to the peer.
  void say_goodbye() noexcept { liveness_.reset(); }
  /// Called when the link is over; idempotent. Lifetime: the memory stays while a slot
  /// is held.
  void close() noexcept;

 private:
  enum class stage : unsigned char { fresh, expecting, requesting, known };

  [[nodiscard]] static task<void> request_pairing(std::shared_ptr<link> l,
                                                  pairing_nonces nonces);
  void tell_outcome(bool paired, bool is_elsewhere, const std::string& why_not);
  void note_refusal(bool is_elsewhere, const std::string& why_not);
  void share(shared_parts parts);
  void end_pairing() noexcept;
  /// Cedes some of our free slots to a peer that runs short.
  void share_what_is_left();

  void watch_for_death(std::unique_ptr<process_watch> process);
  [[nodiscard]] static task<void> until_process_ends(
      std::shared_ptr<link> l, std::unique_ptr<process_watch> process);

  link& link_;
  local_discovery& discovery_;
  stage stage_ = stage::fresh;
  event pairing_ended_;
  pairing_nonces nonces_;
  /// What a request brought, until the peer confirms over the link.
  std::unique_ptr<shared_parts> unconfirmed_;

  std::shared_ptr<shared_link> shared_;
  std::shared_ptr<slot_pool> slots_;
  std::optional<beat_exchange> beats_;
  bool said_full_ = false;
  death_notices::ticket death_ = death_notices::ticket::none;
  /// Released before the memory.
  std::unique_ptr<held_liveness> liveness_;
};

}  // namespace manyworlds::inline v0::detail::shm
