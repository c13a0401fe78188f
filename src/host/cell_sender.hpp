// Cell sender: the outgoing half over shared memory: frames as cells, contents in chunks,
// large messages left where they are for the peer to read.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "host/cell_frame.hpp"
#include "host/pool_offers.hpp"
#include "host/sender.hpp"
#include "link/shared_link.hpp"
#include "memory/payload_copy.hpp"

namespace manyworlds::inline v0::detail::host {

class cell_sender final : public sender {
 public:
  cell_sender(core& shared, shm::shared_link& link, unsigned slot);

  /// Sends a message if it can be accepted at once: all
  /// that a small message is, from its windows to its line. Returns false, with nothing
  /// done, if it must be started as any other.
  [[nodiscard]] bool try_send(const operation& op);
  void control(const frame& f) override;
  [[nodiscard]] bool is_backed_up() const noexcept override { return !overflow_.empty(); }
  [[nodiscard]] bool has_something() const noexcept override {
    return !overflow_.empty() || !active_.empty();
  }

  /// Sends what there is room for, a bounded number of slices. Those that only help a
  /// receiver are sent if `helps`. Returns whether it could go on at once.
  bool progress(bool helps);
  /// Shows the peer all that was written, with one notice.
  void flush() noexcept {
    if (std::exchange(written_, false)) link_.notify(slot_);
  }
  /// Returns whether the peer was told of all written messages.
  [[nodiscard]] bool is_flushed() const noexcept { return !written_; }
  /// Ends all sending: withdraws the offers that stand (law 4), and touches the shared
  /// memory no more.
  void shut() noexcept;

  /// Returns whether something waits for room and there is some now.
  [[nodiscard]] bool could_go_on() noexcept {
    return (is_starving() && !is_full()) || can_help();
  }
  /// Returns the same for a caller that will not look again: if false, the peer
  /// notifies of room.
  [[nodiscard]] bool could_go_on_or_is_told() noexcept;
  /// Returns whether something waits for room in memory that the link's worlds share.
  [[nodiscard]] bool is_starving() const noexcept {
    return has_something() || may_send();
  }

  /// Returns whether slices are wanted by a receiver that reads the payload, too. It is
  /// not told of room for these: they are sent while this side looks anyway.
  [[nodiscard]] bool helps() const noexcept { return !helped_.empty(); }

  /// Gives the reserved chunk to another world of the link. Returns whether there was
  /// one.
  bool give_back_reserved_chunk() noexcept {
    if (!reserved_) return false;
    link_.chunks_out().give_back(*std::exchange(reserved_, std::nullopt));
    return true;
  }

  /// Returns whether there are sends that the peer had taken when they were given up.
  [[nodiscard]] bool has_taken() const noexcept { return !taken_.empty(); }
  void finish_taken();
  /// Returns what the peer did to the shared memory against the rules, or null.
  [[nodiscard]] const char* violation() const noexcept { return violation_; }
  [[nodiscard]] time_point last_progress() const noexcept { return last_progress_; }
  void restart_window(time_point now) noexcept { last_progress_ = now; }

 private:
  [[nodiscard]] std::size_t eager_limit() const noexcept override {
    return std::min(core_.options.eager_limit, cell_content_limit);
  }
  [[nodiscard]] bool is_full() noexcept override;
  [[nodiscard]] bool has_offer_room(bool asked) noexcept override;
  [[nodiscard]] bool finds_room_unasked(const operation& op) noexcept override {
    const std::size_t bytes = whole_bytes(op);
    if (bytes <= largest_unasked_) run_ = exact_run(bytes);
    return run_.has_value();
  }
  void put(const frame& f, const operation& op, pending_send* p) override;
  [[nodiscard]] bool is_in_use(const pending_send&) const noexcept override {
    return false;
  }
  [[nodiscard]] bool revoke(pending_send& p) noexcept override;
  [[nodiscard]] const char* check_taken(const pending_send& p) const noexcept override;
  void forget(pending_send& p) noexcept override;

  [[nodiscard]] bool has_chunk() noexcept;
  [[nodiscard]] std::byte* take_chunk(shm::cell_content& c) noexcept;
  /// Returns the first of adjacent chunks for all of `bytes`, if that run is free.
  [[nodiscard]] std::optional<unsigned> exact_run(std::size_t bytes) noexcept;
  /// Returns adjacent chunks for `bytes`, or for fewer. Precondition: a chunk is
  /// reserved.
  [[nodiscard]] shm::allocated_chunk take_run(std::size_t bytes) noexcept;
  void put_eager(shm::cell_content& c, const operation& op, pending_send* p);
  void put_offer(shm::cell_content& c, const operation& op, pending_send& p);
  void copy_out(const_view_cursor& cursor, std::size_t bytes, std::byte* into);
  void publish(const shm::cell_content& c) noexcept;
  /// Sends the next slice of `p` in this run of chunks, or in its cell if that has none.
  void send_slice(pending_send& p, const shm::allocated_chunk& run);
  /// Returns whether `help` would send a slice, which takes no room that others need.
  [[nodiscard]] bool can_help() noexcept { return helps() && has_room_to_help(); }
  [[nodiscard]] bool has_room_to_help() noexcept;
  /// Sends at most `slices` to receivers that read, too.
  void help(int slices);
  /// Returns adjacent chunks for `bytes`, or for fewer, beside those left to others. If
  /// there are none its outcome says so.
  [[nodiscard]] shm::allocated_chunk spare_run(std::size_t bytes) noexcept;

  shm::shared_link& link_;
  const unsigned slot_;
  const std::size_t largest_unasked_;
  copy_to_reader to_peer_;
  shm::ring_writer ring_;
  pool_offers pools_;
  /// A reserved chunk, so that a send that has found room has one.
  std::optional<unsigned> reserved_;
  /// The chunks found for the message that is put next.
  std::optional<unsigned> run_;
  /// Control frames that found no room. What they answer bounds their number.
  std::deque<frame> overflow_;
  std::vector<pending_send*> taken_;
  const char* violation_ = nullptr;
  bool written_ = false;
  bool is_shut_ = false;
  time_point last_progress_{};
};

}  // namespace manyworlds::inline v0::detail::host
