// Payload reader: brings offered payloads through shared memory.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>

#include "host/core.hpp"
#include "host/inbound_message.hpp"
#include "host/payload_cursor.hpp"
#include "link/shared_link.hpp"

namespace manyworlds::inline v0::detail::host {

class cell_receiver;

/// Reads payloads out of their sender's memory, or copies them from its shared pools, in
/// slices and in turns. If neither is possible the receiver asks the sender. What was
/// read counts only if its offer still stood afterwards (law 4).
class payload_reader {
 public:
  payload_reader(core& shared, cell_receiver& owner, rank_t peer, shm::shared_link& link,
                 unsigned slot) noexcept
      : core_(shared), owner_(owner), peer_(peer), link_(link), slot_(slot) {}

  /// Has the payload of `m` brought to its place. Returns false, with nothing done, if
  /// the sender must be asked for it.
  [[nodiscard]] bool begin(inbound_message& m);
  /// Leaves the memory of `m` alone from now on.
  void let_go(inbound_message& m) noexcept;
  /// Does the same for all.
  void stop() noexcept;

  [[nodiscard]] bool has_to_read() const noexcept { return !readings_.empty(); }
  /// Reads the next slice. Returns null, or what is wrong with the offer. Precondition:
  /// `has_to_read`.
  [[nodiscard]] const char* read_slice();
  /// Returns whether nothing is read now: the copy thread has all that is left, or slices
  /// come of it.
  [[nodiscard]] bool awaits_others() const noexcept {
    return awaits_copy_thread() || awaits_slices();
  }

  // A payload that both sides copy at once: its sender in slices from its start, and
  // this side from its end, at first and whenever no slice has come for a while. So it
  // takes half the time of reading it if the sender waits here, and hardly more than that
  // if it does not.
  /// Returns whether its sender should help with what `begin` has taken. Some receives
  /// and senders cannot be helped.
  [[nodiscard]] bool wants_help(const inbound_message& m) const noexcept;
  /// Called when a slice of `m` was put in its place.
  void note_slice(inbound_message& m);

 private:
  struct reading {
    inbound_message* message;
    payload_cursor source;
  };

  /// Bring the next slice to its place and set `count`. A count of 0 means that the
  /// message was let go or is asked for.
  [[nodiscard]] const char* read_memory(reading& r, std::size_t& count);
  [[nodiscard]] const char* read_pools(reading& r, std::size_t& count);
  /// Reads the next slice of a message that its sender helps with.
  [[nodiscard]] const char* read_from_end(inbound_message& m);
  [[nodiscard]] bool awaits_copy_thread() const noexcept;
  [[nodiscard]] bool awaits_slices() const noexcept;
  /// Sizes the next slice so that it can be read in time, at the speed of the last one.
  void fit_slice(std::size_t bytes, duration took) noexcept;
  // The copy thread's part of a payload: at most one job at a time.
  [[nodiscard]] bool may_move(const inbound_message& m) const noexcept;
  void start_moving(reading& r);
  /// Accounts for what the copy thread has read. Returns null, or what is wrong with it.
  [[nodiscard]] const char* collect_moved(inbound_message& m);
  void stop_moving() noexcept;
  void finish_reading(inbound_message& m);
  void go_on_reading(inbound_message& m);
  void turn_to_next_reading();
  void ask_instead(inbound_message& m);
  [[nodiscard]] const char* cannot_read(inbound_message& m, int error);

  core& core_;
  cell_receiver& owner_;
  const rank_t peer_;
  shm::shared_link& link_;
  const unsigned slot_;
  std::deque<reading> readings_;
  std::size_t slice_ = std::size_t{256} * 1024;
  std::shared_ptr<shm::copy_job> moving_;
  inbound_message* moved_for_ = nullptr;
};

}  // namespace manyworlds::inline v0::detail::host
