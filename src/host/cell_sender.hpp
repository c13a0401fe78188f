// Cell sender: the outgoing half over shared memory: frames as cells, contents in chunks,
// large messages left where they are for the peer to read.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "../link/shared_link.hpp"
#include "cell_frame.hpp"
#include "pool_offers.hpp"
#include "sender.hpp"

namespace manyworlds::inline v0::host {

class cell_sender final : public sender {
 public:
  cell_sender(core& shared, shm::shared_link& link, unsigned slot);

  void control(const frame& f) override;
  [[nodiscard]] bool is_backed_up() const noexcept override { return !overflow_.empty(); }
  [[nodiscard]] bool has_something() const noexcept override {
    return !overflow_.empty() || !active_.empty();
  }

  /// Sends what there is room for, a bounded number of slices. True if it could go on at
  /// once.
  bool progress();
  /// Shows the peer what was written, once for all of it.
  void flush() noexcept {
    if (std::exchange(written_, false)) link_.notify(slot_);
  }
  /// Whether the peer was told of all messages that were written.
  [[nodiscard]] bool is_flushed() const noexcept { return !written_; }
  /// The peer gets nothing more of it, the offers that stand are withdrawn (law 4), and
  /// the shared memory is not touched again.
  void shut() noexcept;

  /// Something waits for room, and there is some now.
  [[nodiscard]] bool could_go_on() noexcept { return is_starving() && !is_full(); }
  /// The same, for whoever will not look again: if not, the peer notifies of room.
  [[nodiscard]] bool could_go_on_or_is_told() noexcept;
  /// What waits for room in memory that the link's worlds share.
  [[nodiscard]] bool is_starving() const noexcept {
    return has_something() || may_send();
  }

  /// Another world of the link needs a chunk more than this one may need it.
  bool give_back_spare() noexcept {
    if (!spare_) return false;
    link_.chunks_out().give_back(*std::exchange(spare_, std::nullopt));
    return true;
  }

  /// Sends that the peer had taken as they were given up.
  [[nodiscard]] bool has_taken() const noexcept { return !taken_.empty(); }
  void finish_taken();
  /// What the peer did to the shared memory that it may not; null if nothing.
  [[nodiscard]] const char* violation() const noexcept { return violation_; }
  [[nodiscard]] time_point last_progress() const noexcept { return last_progress_; }
  void restart_window(time_point now) noexcept { last_progress_ = now; }

 private:
  [[nodiscard]] std::size_t eager_limit() const noexcept override {
    return std::min(core_.options.eager_limit, cell_content_limit);
  }
  [[nodiscard]] bool is_full() noexcept override;
  [[nodiscard]] bool has_offer_room(bool asked) noexcept override;
  void put(const frame& f, const operation& op, pending_send* p) override;
  [[nodiscard]] bool is_in_use(const pending_send&) const noexcept override {
    return false;
  }
  [[nodiscard]] bool revoke(pending_send& p) noexcept override;
  [[nodiscard]] const char* check_taken(const pending_send& p) const noexcept override;
  void forget(pending_send& p) noexcept override;

  [[nodiscard]] bool has_chunk() noexcept;
  [[nodiscard]] std::byte* take_chunk(shm::cell_content& c) noexcept;
  /// Chunks one behind another for so many bytes, or for fewer: one at least is there.
  [[nodiscard]] shm::allocated_chunk take_run(std::size_t bytes) noexcept;
  void put_eager(shm::cell_content& c, const operation& op, pending_send* p);
  void put_offer(shm::cell_content& c, const operation& op, pending_send& p);
  void publish(const shm::cell_content& c) noexcept;
  void send_slice(pending_send& p);

  shm::shared_link& link_;
  const unsigned slot_;
  shm::ring_writer ring_;
  pool_offers pools_;
  /// One chunk is held ready, so that whoever found room has it.
  std::optional<unsigned> spare_;
  /// Control frames that found no room; they are bounded by what they answer.
  std::deque<frame> overflow_;
  std::vector<pending_send*> taken_;
  const char* violation_ = nullptr;
  bool written_ = false;
  bool is_shut_ = false;
  time_point last_progress_{};
};

}  // namespace manyworlds::inline v0::host
