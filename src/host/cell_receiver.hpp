// Cell receiver: the incoming half over shared memory: cells, chunks, and payloads that
// are read from their sender's memory.
#pragma once

#include <vector>

#include "host/cell_frame.hpp"
#include "host/payload_reader.hpp"
#include "host/receiver.hpp"
#include "link/shared_link.hpp"

namespace manyworlds::inline v0::detail::host {

/// Only this process writes its receives' memory. A large message stays in its sender's
/// memory, and what was read of it counts only if its offer still stood afterwards.
class cell_receiver final : public receiver {
 public:
  cell_receiver(core& shared, rank_t peer, sender& answers, channel& owner,
                shm::shared_link& link, unsigned slot);

  [[nodiscard]] bool has_cells() const noexcept { return ring_.ready(); }
  /// Handles a bounded number of cells that have come; sets `any` if there were any.
  /// Returns null, or what is wrong with one.
  [[nodiscard]] const char* take(bool& any);
  /// Stops all writing to the memory of receives.
  void shut() noexcept { reader_.stop(); }
  [[nodiscard]] payload_reader& reader() noexcept { return reader_; }
  // What the reader tells: more of a payload is in its place, or all of it; or it must
  // come another way, from its start.
  void note_read(inbound_message& m, std::size_t bytes) noexcept;
  void note_whole(inbound_message& m) { complete(m); }
  void ask_for(inbound_message& m);
  /// Returns whether there are offers that may be kept and that no receive took on
  /// arrival.
  [[nodiscard]] bool has_untaken() const noexcept { return !untaken_.empty(); }
  /// Copies the offers that still wait, so that their senders need not wait. Thus no
  /// two members wait for each other's receive with data that both may send unasked.
  void collect_untaken();

 private:
  [[nodiscard]] bool is_in_use(const inbound_message&) const noexcept override {
    return false;
  }
  void let_go(inbound_message& m) noexcept override { reader_.let_go(m); }
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

  shm::shared_link& link_;
  const unsigned slot_;
  shm::ring_reader ring_;
  payload_reader reader_;
  std::vector<std::uint64_t> untaken_;
  /// Chunks were freed, and their writer was not yet told of it, if it waits for one.
  bool has_freed_ = false;
};

}  // namespace manyworlds::inline v0::detail::host
