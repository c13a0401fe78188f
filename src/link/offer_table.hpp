// Offers of large messages: words that decide whether the sender or the receiver was
// first.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "link/shared_word.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

enum class offer_state : std::uint8_t { free, offered, taken, withdrawn };

/// Content of an OFFER cell: a word of the table, and the use of it.
struct offer_ticket {
  std::uint32_t index = 0;
  std::uint64_t generation = 0;
};

/// Puts generation and state into one word, so that no answer to an old offer meets a
/// new one. With 56 bits a generation does not repeat.
[[nodiscard]] constexpr std::uint64_t offer_word(std::uint64_t generation,
                                                 offer_state state) noexcept {
  return generation << 8 | static_cast<std::uint64_t>(state);
}

/// Zeroed memory is a table without offers.
template <class Memory, std::uint32_t Offers>
struct basic_offer_table {
  static constexpr std::uint32_t offers = Offers;
  alignas(line_size)
      std::array<typename Memory::template atomic<std::uint64_t>, Offers> words;
};

using offer_table = basic_offer_table<hardware_memory, 1024>;

/// The sender's end. An offered buffer is only *read* by the peer, and what it read
/// counts only if its take() succeeded. So a sender that has withdrawn may give its
/// buffer back at once, also while a stopped peer may yet read on (law 4). Giving up
/// needs no answer from the peer and fails nothing (law 10).
template <class Table>
class basic_offer_sender {
 public:
  enum class status : std::uint8_t {
    open,
    taken,
    withdrawn,
    corrupt,  ///< a word that the receiver cannot have set
  };

  explicit basic_offer_sender(Table& table) noexcept : table_(&table) {}

  /// Makes an offer, or returns nothing if all words are in use until one is finished.
  /// Precondition: the buffer is filled.
  [[nodiscard]] std::optional<offer_ticket> offer() noexcept {
    if (in_use_ == Table::offers) return std::nullopt;
    while (uses_[next_].used) next_ = (next_ + 1) % Table::offers;
    auto& use = uses_[next_];
    use.used = true;
    ++use.generation;
    ++in_use_;
    // Relaxed: the cell that carries the ticket is published after it, with release.
    table_->words[next_].store(offer_word(use.generation, offer_state::offered),
                               std::memory_order_relaxed);
    return offer_ticket{next_, use.generation};
  }

  /// Returns the state of the offer. Once it is taken, the buffer is the sender's.
  [[nodiscard]] status poll(const offer_ticket& ticket) const noexcept {
    MW_ASSERT(ticket.index < Table::offers, "a ticket names a word");
    // Acquire: pairs with take(); the receiver has read all of the buffer.
    return status_of(table_->words[ticket.index].load(std::memory_order_acquire), ticket);
  }

  /// Gives up; the buffer is the sender's afterwards. `withdrawn`: the peer gets
  /// nothing. `taken`: the peer was first, and the message is delivered.
  [[nodiscard]] status withdraw(const offer_ticket& ticket) noexcept {
    MW_ASSERT(ticket.index < Table::offers, "a ticket names a word");
    auto word = offer_word(ticket.generation, offer_state::offered);
    // Exactly one of this and the receiver's compare_exchange finds the word offered.
    table_->words[ticket.index].compare_exchange_strong(
        word, offer_word(ticket.generation, offer_state::withdrawn),
        std::memory_order_acq_rel, std::memory_order_acquire);
    const auto found = status_of(word, ticket);
    return found == status::open ? status::withdrawn : found;
  }

  /// Ends an offer that is taken or withdrawn: its word may be used again. A receiver
  /// that still holds the ticket finds another generation.
  void finish(const offer_ticket& ticket) noexcept {
    MW_ASSERT(ticket.index < Table::offers, "a ticket names a word");
    auto& use = uses_[ticket.index];
    if (!use.used || use.generation != ticket.generation) return;
    MW_ASSERT(in_use_ > 0, "an offer is finished once");
    use.used = false;
    --in_use_;
    // The lowest words first, so that memory is touched only as far as it is needed.
    if (ticket.index < next_) next_ = ticket.index;
    table_->words[ticket.index].store(offer_word(ticket.generation, offer_state::free),
                                      std::memory_order_relaxed);
  }

  [[nodiscard]] std::uint32_t in_use() const noexcept { return in_use_; }

 private:
  struct use {
    std::uint64_t generation = 0;
    bool used = false;
  };

  static status status_of(std::uint64_t word, const offer_ticket& ticket) noexcept {
    if (word == offer_word(ticket.generation, offer_state::offered)) return status::open;
    if (word == offer_word(ticket.generation, offer_state::taken)) return status::taken;
    if (word == offer_word(ticket.generation, offer_state::withdrawn))
      return status::withdrawn;
    return status::corrupt;
  }

  Table* table_;
  // Private generations: the peer could overwrite those in the table.
  std::array<use, Table::offers> uses_{};
  std::uint32_t next_ = 0;
  std::uint32_t in_use_ = 0;
};

/// The receiver's end.
template <class Table>
class basic_offer_receiver {
 public:
  explicit basic_offer_receiver(Table& table) noexcept : table_(&table) {}

  /// Says whether a ticket read from a cell can be one at all.
  [[nodiscard]] static bool valid(const offer_ticket& ticket) noexcept {
    return ticket.index < Table::offers && ticket.generation != 0 &&
           ticket.generation < std::uint64_t{1} << 56;
  }

  /// Fetches the line that take() changes while the last of the payload is read.
  void expect_to_take(const offer_ticket& ticket) const noexcept {
    __builtin_prefetch(&table_->words[ticket.index], 1);
  }

  /// Says whether reading on makes sense; take() decides. Called between slices.
  /// Precondition: valid().
  [[nodiscard]] bool still_offered(const offer_ticket& ticket) const noexcept {
    MW_ASSERT(valid(ticket), "a ticket of a cell was checked");
    // Acquire: what was read of the buffer is older than the answer.
    std::atomic_thread_fence(std::memory_order_acquire);
    return table_->words[ticket.index].load(std::memory_order_relaxed) ==
           offer_word(ticket.generation, offer_state::offered);
  }

  /// Called after the last slice was read. Returns true if all that was read is the
  /// message. False: the sender has given up, and what was read must be discarded.
  /// Precondition: valid().
  [[nodiscard]] bool take(const offer_ticket& ticket) noexcept {
    MW_ASSERT(valid(ticket), "a ticket of a cell was checked");
    auto word = offer_word(ticket.generation, offer_state::offered);
    // Release: our reads of the buffer come before the sender's next use of it.
    return table_->words[ticket.index].compare_exchange_strong(
        word, offer_word(ticket.generation, offer_state::taken),
        std::memory_order_acq_rel, std::memory_order_relaxed);
  }

 private:
  Table* table_;
};

using offer_sender = basic_offer_sender<offer_table>;
using offer_receiver = basic_offer_receiver<offer_table>;

}  // namespace manyworlds::inline v0::detail::shm
