// Cell receiver: the incoming half over shared memory: cells, chunks, and payloads that
// are read from their sender's memory.
#pragma once

#include <deque>
#include <memory>
#include <variant>
#include <vector>

#include "../link/shared_link.hpp"
#include "cell_frame.hpp"
#include "pool_cursor.hpp"
#include "receiver.hpp"
#include "remote_cursor.hpp"

namespace manyworlds::inline v0::host {

/// Only this process writes its receives' memory. Whoever sends a large message leaves it
/// where it is; what was read of it counts only if its offer still stood afterwards.
class cell_receiver final : public receiver {
 public:
  cell_receiver(core& shared, rank_t peer, sender& answers, frame_handler& others,
                shm::shared_link& link, unsigned slot);

  [[nodiscard]] bool has_cells() const noexcept { return ring_.ready(); }
  /// Handles what has come, a bounded number of cells; `any` if there was something.
  /// Null, or what is wrong with it.
  [[nodiscard]] const char* take(bool& any);
  /// Reads the next slice of an offered payload. Null, or what is wrong with it.
  [[nodiscard]] const char* read_slice();
  [[nodiscard]] bool has_to_read() const noexcept { return !readings_.empty(); }
  /// All that is left to read is with the mover.
  [[nodiscard]] bool awaits_mover() const noexcept;
  /// Nothing writes to the memory of a receive any more.
  void shut() noexcept {
    stop_moving();
    readings_.clear();
  }
  /// Offers that may be kept, and that nobody took as they came.
  [[nodiscard]] bool has_untaken() const noexcept { return !untaken_.empty(); }
  /// Keeps those that still wait, so that their senders need not: no two members wait for
  /// each other's receive with what both may send unasked.
  void collect_untaken();

 private:
  struct reading {
    inbound_message* message;
    std::variant<remote_cursor, pool_cursor> source;
  };

  [[nodiscard]] bool is_in_use(const inbound_message&) const noexcept override {
    return false;
  }
  void let_go(inbound_message& m) noexcept override;
  void begin(inbound_message& m) override;
  void note_untaken(const inbound_message& m) override { untaken_.push_back(m.id); }

  [[nodiscard]] const char* handle_cell(shm::cell_content& c);
  [[nodiscard]] const char* handle_content(const frame& f,
                                           std::span<const std::byte> content);
  /// The next slice is in its place: `count` bytes. None: it was let go.
  [[nodiscard]] const char* read_from(remote_cursor& source, inbound_message& m,
                                      std::size_t& count);
  [[nodiscard]] const char* read_from(pool_cursor& source, inbound_message& m,
                                      std::size_t& count);
  /// The next slice is what can be read in time, as the last one was read.
  void fit_slice(std::size_t bytes, duration took) noexcept;
  // The mover's part of a payload, at most one job at a time.
  [[nodiscard]] bool may_move(const inbound_message& m) const noexcept;
  void start_moving(remote_cursor& source, inbound_message& m);
  /// What it has read by now is in its place. Null, or what is wrong with it.
  [[nodiscard]] const char* collect_moved(inbound_message& m);
  void stop_moving() noexcept;
  [[nodiscard]] const char* finish_reading(inbound_message& m);
  void turn_to_next_reading();
  void ask_instead(inbound_message& m);
  [[nodiscard]] const char* cannot_read(inbound_message& m, int error);

  shm::shared_link& link_;
  const unsigned slot_;
  shm::ring_reader ring_;
  std::deque<reading> readings_;
  std::size_t slice_ = std::size_t{256} * 1024;
  std::shared_ptr<shm::move_job> moving_;
  inbound_message* moved_for_ = nullptr;
  std::vector<std::uint64_t> untaken_;
  /// Chunks whose writer has not been told yet, if it waits for one.
  bool has_freed_ = false;
};

}  // namespace manyworlds::inline v0::host
