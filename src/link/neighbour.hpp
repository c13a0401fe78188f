// Neighbour: what one link shares with its peer, if that lives on the same host.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "beat_line.hpp"
#include "death_notices.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/link/data_channel.hpp"
#include "manyworlds/link/link.hpp"
#include "meeting_place.hpp"
#include "process_watch.hpp"
#include "robust_word.hpp"
#include "slot_register.hpp"

namespace manyworlds::inline v0::shm {

class neighbourhood;
class shared_link;

/// Who accepted the link invites, over it; who dialled visits and says what came of it.
/// If they have met, the link has shared memory from then on, and its worlds take slots
/// there; else, and until that is known, they use tcp. Part of a link, on the service
/// reactor.
class neighbour {
 public:
  neighbour(link& l, neighbourhood& all) noexcept : link_(l), all_(all) {}
  neighbour(const neighbour&) = delete;
  neighbour& operator=(const neighbour&) = delete;
  ~neighbour();

  /// Of a link that was accepted, as its first words.
  void invite();

  // What the peer says. Throws wire_error.
  void take_invitation(std::span<const std::byte> body);
  void take_outcome(std::span<const std::byte> body);
  void take_slot(std::span<const std::byte> body);
  void take_returns(std::span<const std::byte> body);
  void take_ceded(std::span<const std::byte> body);

  /// What a visitor must know; null if none is to come (any more).
  [[nodiscard]] const invitation* expected() const noexcept;
  void receive(shared_parts parts);

  /// Whether memory is shared, once that is known, or at `deadline`.
  [[nodiscard]] task<bool> settled(time_point deadline);
  [[nodiscard]] bool is_local() const noexcept { return shared_ != nullptr; }
  /// Of a local one: whether its memory is read.
  [[nodiscard]] bool is_readable() const noexcept;
  /// A place for a world; the peer is told whose. None, which is said once, if no slot or
  /// no memory is left.
  [[nodiscard]] slot_lease lend(std::uint64_t world_id, rank_t rank);
  /// Local: shows our life in the shared memory, and gives what the peer shows if it has
  /// beaten since the last call.
  [[nodiscard]] std::optional<beat_signs> exchange_beats(
      const beat_signs& ours) noexcept {
    beats_->beat(ours);
    return beats_->look();
  }
  /// Tells the peer which slots were given back here.
  void return_slots();

  /// The end of this process is no news to the peer any more.
  void say_goodbye() noexcept { life_.reset(); }
  /// The link is over. The memory stays for those who hold slots.
  void part() noexcept;

 private:
  enum class stage : unsigned char { fresh, expecting, visiting, known };

  [[nodiscard]] static task<void> visit(std::shared_ptr<link> l, invitation words);
  void share(shared_parts parts);
  void settle() noexcept;
  /// The peer, if it hands out most of the slots, gets some of ours.
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
  /// What a visitor brought, until it says that it has met us.
  std::unique_ptr<shared_parts> visitor_;

  std::shared_ptr<shared_link> shared_;
  std::shared_ptr<slot_register> slots_;
  std::optional<beat_exchange> beats_;
  bool said_full_ = false;
  death_notices::ticket death_ = death_notices::ticket::none;
  /// Released before the memory is let go.
  std::unique_ptr<held_life> life_;
};

}  // namespace manyworlds::inline v0::shm
