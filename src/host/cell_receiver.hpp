// Cell receiver: the incoming half over shared memory: cells, chunks, and payloads that
// are read from their sender's memory.
#pragma once

#include <deque>
#include <memory>
#include <variant>
#include <vector>

#include "host/cell_frame.hpp"
#include "host/pool_cursor.hpp"
#include "host/receiver.hpp"
#include "host/remote_cursor.hpp"
#include "link/shared_link.hpp"

namespace manyworlds::inline v0::detail::host {

/// Only this process writes its receives' memory. A large message stays in its sender's
/// memory, and what was read of it counts only if its offer still stood afterwards.
class cell_receiver final : public receiver {
 public:
  cell_receiver(core& shared, rank_t peer, sender& answers, frame_handler& others,
                shm::shared_link& link, unsigned slot);

  [[nodiscard]] bool has_cells() const noexcept { return ring_.ready(); }
  /// Handles a bounded number of cells that have come; sets `any` if there were any.
  /// Returns null, or what is wrong with one.
  [[nodiscard]] const char* take(bool& any);
  /// Reads the next slice of an offered payload. Returns null, or what is wrong with
  /// it.
  [[nodiscard]] const char* read_slice();
  [[nodiscard]] bool has_to_read() const noexcept { return !readings_.empty(); }
  /// Returns whether the copy thread has all that is left to read.
  [[nodiscard]] bool awaits_copy_thread() const noexcept;
  /// Stops all writing to the memory of receives.
  void shut() noexcept {
    stop_moving();
    readings_.clear();
  }
  /// Returns whether there are offers that may be kept and that no receive took on
  /// arrival.
  [[nodiscard]] bool has_untaken() const noexcept { return !untaken_.empty(); }
  /// Copies the offers that still wait, so that their senders need not wait. Thus no
  /// two members wait for each other's receive with data that both may send unasked.
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

  /// Passes a plain message on to the receive that waits for it: all that a small
  /// arrival is, from its line to its receive. Returns false, with nothing done, if it
  /// must be handled as any other frame.
  [[nodiscard]] bool pass_on(shm::cell_content& c);
  void free_chunks(unsigned first) noexcept;
  /// Tells a writer that waits for a chunk that some were freed.
  void tell_of_freed() noexcept;
  [[nodiscard]] const char* handle_cell(shm::cell_content& c);
  [[nodiscard]] const char* handle_content(const frame& f,
                                           std::span<const std::byte> content);
  /// Brings the next slice to its place and sets `count`. A count of 0 means that the
  /// message was let go or is asked for.
  [[nodiscard]] const char* read_from(remote_cursor& source, inbound_message& m,
                                      std::size_t& count);
  [[nodiscard]] const char* read_from(pool_cursor& source, inbound_message& m,
                                      std::size_t& count);
  /// Sizes the next slice so that it can be read in time, at the speed of the last one.
  void fit_slice(std::size_t bytes, duration took) noexcept;
  // The copy thread's part of a payload: at most one job at a time.
  [[nodiscard]] bool may_move(const inbound_message& m) const noexcept;
  void start_moving(remote_cursor& source, inbound_message& m);
  /// Accounts for what the copy thread has read. Returns null, or what is wrong with it.
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
  std::shared_ptr<shm::copy_job> moving_;
  inbound_message* moved_for_ = nullptr;
  std::vector<std::uint64_t> untaken_;
  /// Chunks were freed, and their writer was not yet told of it, if it waits for one.
  bool has_freed_ = false;
};

}  // namespace manyworlds::inline v0::detail::host
