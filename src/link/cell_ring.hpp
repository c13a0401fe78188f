// The ring of cells in shared memory: one process writes it, one reads it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "link/shared_word.hpp"
#include "link/wait_flag.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

/// The content of a cell: 4 bytes and some words; 60 bytes on the hardware.
template <std::size_t Words>
struct basic_content {
  std::uint32_t head = 0;
  std::array<std::uint64_t, Words> body{};
};

/// A cell is one line. Its sequence is stored last and is one more than the position of
/// the content. A writer that is killed before that store has shown nothing.
template <class Memory, std::size_t Words>
struct alignas(line_size) basic_cell {
  typename Memory::template atomic<std::uint32_t> sequence;
  typename Memory::template atomic<std::uint32_t> head;
  std::array<typename Memory::template atomic<std::uint64_t>, Words> body;
};

/// The shared part of a ring. Zeroed memory is an empty ring with the next position 0.
template <class Memory, std::size_t Words, std::uint32_t Capacity>
struct basic_ring {
  static_assert((Capacity & (Capacity - 1)) == 0, "positions wrap at 2^32");
  static constexpr std::uint32_t capacity = Capacity;
  /// The reader reports at each quarter what it has read. So a batch of at most
  /// `largest_batch` cells has room as soon as the reader has read all.
  static constexpr std::uint32_t quarter = Capacity / 4;
  static constexpr std::uint32_t largest_batch = Capacity / 2;
  static_assert(Capacity > 0 && quarter + largest_batch <= Capacity);

  using memory = Memory;
  using cell = basic_cell<Memory, Words>;
  using content = basic_content<Words>;

  std::array<cell, Capacity> cells;
  /// The position up to which the reader is done; written by the reader alone.
  alignas(line_size) typename Memory::template atomic<std::uint32_t> consumed;
  /// Raised by a writer that waits for room. It shares the line: it is written only
  /// when the ring is full, and read only after `consumed` was written.
  wait_flag<Memory> starved;

  [[nodiscard]] cell& at(std::uint32_t position) noexcept {
    return cells[position % Capacity];
  }

  /// Is unrolled: a poller would fetch a slowly written line away half written.
  template <class Visit>
  static void for_each_word(Visit visit) noexcept {
    [&]<std::size_t... Word>(std::index_sequence<Word...>) { (visit(Word), ...); }
    (std::make_index_sequence<Words>{});
  }
};

using cell_ring = basic_ring<hardware_memory, 7, 64>;
using cell_content = cell_ring::content;

static_assert(sizeof(cell_ring::cell) == line_size);
static_assert(sizeof(cell_ring) == 65 * line_size);

enum class room : std::uint8_t {
  enough,
  full,
  corrupt,  ///< the reader claims to have read what was not published; sticky
};

/// The writing end: reserve, fill, publish; then notify the reader (see wake_up.hpp).
/// It keeps its own position and trusts the shared one for nothing else. Lifetime: that
/// of the ring.
template <class Ring>
class basic_ring_writer {
 public:
  using content = typename Ring::content;

  /// Only tests of the wrap begin at another position than 0.
  explicit basic_ring_writer(Ring& ring, std::uint32_t position = 0) noexcept
      : ring_(&ring), position_(position), consumed_(position) {}

  /// Says whether `cells` may be filled now. Precondition: they are at most
  /// Ring::largest_batch.
  [[nodiscard]] room reserve(std::uint32_t cells) noexcept {
    MW_ASSERT(cells <= Ring::capacity, "a batch fits into the ring");
    if (is_reserved(cells)) [[likely]]
      return room::enough;
    return look_for_room(cells);
  }

  /// Says whether reserve() has found room for `cells` that were not published since. It
  /// looks at nothing that is shared.
  [[nodiscard]] bool is_reserved(std::uint32_t cells) const noexcept {
    return Ring::capacity - (position_ - consumed_) >= cells;
  }

  /// Writes the cell that is `ahead` of the next position. It stays invisible.
  /// Precondition: it was reserved.
  void fill(std::uint32_t ahead, const content& what) noexcept {
    MW_ASSERT(position_ - consumed_ + ahead < Ring::capacity,
              "only free cells are filled");
    auto& cell = ring_->at(position_ + ahead);
    cell.head.store(what.head, std::memory_order_relaxed);
    Ring::for_each_word([&](std::size_t word) {
      cell.body[word].store(what.body[word], std::memory_order_relaxed);
    });
  }

  /// Shows the next `cells`, last one first: a reader that sees the first sees all of
  /// them, and a writer that is killed on the way has shown none.
  void publish(std::uint32_t cells) noexcept {
    MW_ASSERT(position_ - consumed_ + cells <= Ring::capacity,
              "only free cells are published");
    for (auto at = position_ + cells; at != position_; --at)
      // Release: pairs with the acquire in ready(), which then sees what fill() wrote.
      ring_->at(at - 1).sequence.store(at, std::memory_order_release);
    position_ += cells;
  }

  /// Returns whether to wait until the reader notifies; if not, reserve() has another
  /// answer now. Precondition: reserve() said `full`.
  [[nodiscard]] bool must_wait_for_room(std::uint32_t cells) noexcept {
    return ring_->starved.raise_unless(
        [this, cells] { return reserve(cells) != room::full; });
  }

  [[nodiscard]] std::uint32_t position() const noexcept { return position_; }

 private:
  [[nodiscard]] room look_for_room(std::uint32_t cells) noexcept {
    if (corrupt_) return room::corrupt;
    // Acquire: pairs with the release in pop(); the reader is done with the cells that
    // we overwrite.
    const auto consumed = ring_->consumed.load(std::memory_order_acquire);
    // It never goes back, and never beyond the published position.
    if (position_ - consumed > position_ - consumed_) {
      corrupt_ = true;
      return room::corrupt;
    }
    consumed_ = consumed;
    return is_reserved(cells) ? room::enough : room::full;
  }

  Ring* ring_;
  std::uint32_t position_;
  std::uint32_t consumed_;
  bool corrupt_ = false;
};

/// The reading end: while ready(): copy front(), pop(), then look at the copy.
template <class Ring>
class basic_ring_reader {
 public:
  using content = typename Ring::content;

  explicit basic_ring_reader(Ring& ring, std::uint32_t position = 0) noexcept
      : ring_(&ring), position_(position), told_(position) {}

  /// Says whether a cell has been published, by one load.
  [[nodiscard]] bool ready() const noexcept {
    // Acquire: pairs with the release in publish().
    return ring_->at(position_).sequence.load(std::memory_order_acquire) == position_ + 1;
  }

  /// Returns a copy of the next cell. Each word is read once, so that a checked copy
  /// cannot change afterwards. Precondition: ready().
  [[nodiscard]] content front() const noexcept {
    const auto& cell = ring_->at(position_);
    content copy;
    copy.head = cell.head.load(std::memory_order_relaxed);
    Ring::for_each_word([&](std::size_t word) {
      copy.body[word] = cell.body[word].load(std::memory_order_relaxed);
    });
    return copy;
  }

  /// Gives the cell back. Returns whether the writer waits for room and must be
  /// notified.
  [[nodiscard]] bool pop() noexcept {
    MW_ASSERT(position_ - told_ <= Ring::quarter, "the writer is told at each quarter");
    ++position_;
    if (position_ - told_ < Ring::quarter) [[likely]]
      return false;
    told_ = position_;
    // Release: pairs with the acquire in look_for_room(); front() has read the cells
    // before.
    ring_->consumed.store(position_, std::memory_order_release);
    Memory::full_fence();
    return ring_->starved.take_after_fence();
  }

  [[nodiscard]] std::uint32_t position() const noexcept { return position_; }

 private:
  using Memory = typename Ring::memory;

  Ring* ring_;
  std::uint32_t position_;
  std::uint32_t told_;
};

using ring_writer = basic_ring_writer<cell_ring>;
using ring_reader = basic_ring_reader<cell_ring>;

}  // namespace manyworlds::inline v0::detail::shm
