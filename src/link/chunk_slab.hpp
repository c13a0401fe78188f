// A slab of chunks in shared memory: messages too large for cells, too small to be
// pulled.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "link/shared_word.hpp"
#include "link/wait_flag.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

inline constexpr std::size_t chunk_size = 8192;

/// Returns how many chunks `bytes` need.
[[nodiscard]] constexpr std::size_t chunks_of(std::size_t bytes) noexcept {
  return (bytes + chunk_size - 1) / chunk_size;
}

/// The states of a slab's chunks, which are used in *runs* of one or several adjacent
/// chunks. The state of a run's first chunk is their number; the reader sets it to 0
/// once it has copied their content. The states of the others mean nothing. Zeroed
/// memory is a free slab. The chunks themselves lie elsewhere in the segment.
template <class Memory, unsigned Chunks>
struct basic_chunk_states {
  static_assert(Chunks > 0 && Chunks <= 64, "the writer's own record is one word");
  static constexpr unsigned chunks = Chunks;
  using memory = Memory;

  alignas(line_size)
      std::array<typename Memory::template atomic<std::uint8_t>, Chunks> states;
  /// Raised by a writer that waits for a chunk.
  alignas(line_size) wait_flag<Memory> starved;
};

using chunk_states = basic_chunk_states<hardware_memory, 64>;
static_assert(sizeof(chunk_states) == 2 * line_size);

struct allocated_chunk {
  enum class outcome : std::uint8_t {
    allocated,
    none_free,
    corrupt,  ///< a state that the reader cannot have set; sticky
  };
  outcome result = outcome::none_free;
  unsigned index = 0;
  /// The length of the run that begins at `index`.
  unsigned count = 1;
};

/// The writing end. It allocates the lowest chunks that it knows to be free, and looks
/// for freed ones only when these are too few. So memory is touched only as far as it
/// is needed at once. A chunk that was just freed rests, since its lines and that of
/// the states are still the other CPU's (8 KiB four at a time: 7.5 to 10.2 GB/s, one
/// way 2.07 to 1.91 us).
template <class States>
class basic_chunk_writer {
 public:
  /// Allocates only the first `usable` chunks, until `allow`.
  explicit basic_chunk_writer(States& shared, unsigned usable = States::chunks) noexcept
      : shared_(&shared), usable_(first(usable)) {}

  void allow(unsigned usable) noexcept { usable_ = first(usable); }

  /// Returns how many of the first chunks were in use at any time since the last call, or
  /// are now.
  [[nodiscard]] unsigned used_lately() noexcept {
    take_back();
    const auto now = static_cast<unsigned>(64 - std::countl_zero(used_));
    return std::max(std::exchange(highest_, now), now);
  }

  /// Returns whether at least `count` chunks are free. It looks for freed ones only if
  /// too few are known.
  [[nodiscard]] bool has_free(unsigned count) noexcept {
    const auto known = [this] {
      return static_cast<unsigned>(std::popcount(usable_ & ~used_));
    };
    if (known() >= count) return true;
    take_back();
    return known() >= count;
  }

  /// Allocates a run of `count` free chunks, or says `none_free`. The caller may fill
  /// them until it names the first in a published cell.
  [[nodiscard]] allocated_chunk allocate(unsigned count = 1) noexcept {
    using outcome = allocated_chunk::outcome;
    MW_ASSERT(count > 0 && count <= States::chunks, "a run has a length");
    if (beginnings(count) == 0) take_back();
    if (corrupt_) return {outcome::corrupt, 0, 0};
    const std::uint64_t begins = beginnings(count);
    if (begins == 0) return {outcome::none_free, 0, 0};
    const auto index = static_cast<unsigned>(std::countr_zero(begins));
    MW_ASSERT((used_ & first(count) << index) == 0, "a run is made of unused chunks");
    MW_ASSERT((usable_ >> index & first(count)) == first(count), "a run has memory");
    used_ |= first(count) << index;
    highest_ = std::max(highest_, index + count);
    runs_ |= std::uint64_t{1} << index;
    counts_[index] = static_cast<std::uint8_t>(count);
    set(index, counts_[index]);
    return {outcome::allocated, index, count};
  }

  /// Gives back a run that no published cell names, or that will not be read; `index`
  /// is its first chunk. Does nothing if it is no longer a run.
  void give_back(unsigned index) noexcept {
    MW_ASSERT(index < States::chunks, "a chunk lies in the slab");
    if ((runs_ >> index & 1) == 0) return;
    forget(index);
    set(index, 0);
  }

  /// Returns whether to wait until the reader notifies; if not, allocate() has another
  /// answer now. Precondition: allocate() said `none_free`.
  [[nodiscard]] bool must_wait_for_chunk() noexcept {
    return shared_->starved.raise_unless([this] {
      take_back();
      return corrupt_ || beginnings(1) != 0;
    });
  }

 private:
  static constexpr std::uint64_t first(unsigned chunks) noexcept {
    MW_ASSERT(chunks > 0 && chunks <= States::chunks, "a mask is of a run of the slab");
    return ~std::uint64_t{0} >> (64 - chunks);
  }

  /// Returns the chunks at which `count` unused ones begin.
  [[nodiscard]] std::uint64_t beginnings(unsigned count) const noexcept {
    const std::uint64_t unused = usable_ & ~used_;
    std::uint64_t begins = unused;
    for (unsigned further = 1; further < count; ++further) begins &= unused >> further;
    return begins;
  }

  void set(unsigned index, std::uint8_t state) noexcept {
    // Relaxed: the cell that names the chunk is published after it, with release.
    shared_->states[index].store(state, std::memory_order_relaxed);
  }

  void forget(unsigned index) noexcept {
    MW_ASSERT((runs_ >> index & 1) != 0, "only a run is forgotten");
    used_ &= ~(first(counts_[index]) << index);
    runs_ &= ~(std::uint64_t{1} << index);
  }

  void take_back() noexcept {
    for (auto left = runs_; left != 0; left &= left - 1) {
      const auto index = static_cast<unsigned>(std::countr_zero(left));
      // Acquire: pairs with the release in free(); the reader is done with the content.
      const auto state = shared_->states[index].load(std::memory_order_acquire);
      if (state == 0)
        forget(index);
      else if (state != counts_[index])
        corrupt_ = true;
    }
  }

  States* shared_;
  std::uint64_t usable_;
  std::uint64_t used_ = 0;
  /// The first chunk and the length of each run. The shared states are not trusted.
  std::uint64_t runs_ = 0;
  std::array<std::uint8_t, States::chunks> counts_{};
  unsigned highest_ = 0;
  bool corrupt_ = false;
};

/// The reading end, for chunks that a cell has named.
template <class States>
class basic_chunk_reader {
 public:
  explicit basic_chunk_reader(States& shared) noexcept : shared_(&shared) {}

  /// Says whether `index`, as read from a cell, begins a run of `count` chunks in use.
  /// A peer that names another has broken the protocol.
  [[nodiscard]] bool valid(std::uint64_t index, std::size_t count = 1) const noexcept {
    return index < States::chunks && count > 0 && count <= States::chunks - index &&
           shared_->states[index].load(std::memory_order_relaxed) == count;
  }

  /// Gives a valid run back, after its content was copied. Call writer_waits() after
  /// some of these.
  void free(std::uint64_t index) noexcept {
    // Release: pairs with the acquire in take_back().
    MW_ASSERT(index < States::chunks, "a valid chunk lies in the slab");
    shared_->states[index].store(0, std::memory_order_release);
  }

  /// Returns whether the writer was seen to wait. Without a fence it may be overlooked:
  /// `writer_waits` decides.
  [[nodiscard]] bool seems_awaited() const noexcept {
    return shared_->starved.is_raised();
  }
  /// Returns whether the writer waits for a chunk and must be notified. Call it once
  /// for all that were freed: the fence waits until their line is ours (1 KiB four at a
  /// time: 2.7 to 2.9 GB/s).
  [[nodiscard]] bool writer_waits() noexcept {
    States::memory::full_fence();
    return shared_->starved.take_after_fence();
  }

 private:
  States* shared_;
};

using chunk_writer = basic_chunk_writer<chunk_states>;
using chunk_reader = basic_chunk_reader<chunk_states>;

}  // namespace manyworlds::inline v0::detail::shm
