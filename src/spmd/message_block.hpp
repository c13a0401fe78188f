// Message block: the bytes behind the head of a command or a reply.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/memory/buffer_view.hpp"
#include "manyworlds/spmd/value_reader.hpp"
#include "manyworlds/world/message_info.hpp"
#include "manyworlds/world/world.hpp"
#include "spmd/command_wire.hpp"
#include "spmd/value_layout.hpp"

namespace manyworlds::inline v0::detail {

/// Returns where the data beside values begins that end at `behind`.
[[nodiscard]] constexpr std::size_t beside_at(std::size_t behind,
                                              std::size_t beside) noexcept {
  return beside == 0 ? behind : behind + padding_at(behind, beside_alignment);
}

inline constexpr std::size_t largest_small_block = 80;

/// A head, and behind it room for its block if that is small and has nothing beside its
/// values, as most have. That is one message, where a payload is received by an operation
/// of its own, into memory of its own: 0.4 us at either side, of 4 us a call [m].
template <class Head>
struct head_and_block {
  static constexpr std::size_t room = 128 - sizeof(Head);

  Head head;
  std::array<std::byte, room> small;

  static_assert(room <= largest_small_block);
};

/// Memory for what is received. Values refer to it and share it: a tensor that came with
/// a call lives as long as it is referred to.
class received_block {
 public:
  received_block() noexcept = default;
  /// Errors: std::bad_alloc.
  explicit received_block(std::size_t size)
      : memory_(::operator new(size == 0 ? 1 : size, alignment),
                [](void* memory) { ::operator delete(memory, alignment); }),
        size_(size) {}
  /// Copies a small one, of which nothing is shared.
  explicit received_block(std::span<const std::byte> small) noexcept
      : size_(small.size()) {
    MW_ASSERT(small.size() <= small_.size(), "a block without a payload is a small one");
    std::ranges::copy(small, small_.begin());
  }

  [[nodiscard]] buffer_view view() noexcept { return bytes_at(0, size_); }
  [[nodiscard]] std::span<std::byte> bytes_at(std::size_t begin,
                                              std::size_t size) noexcept {
    std::byte* const all =
        memory_ ? static_cast<std::byte*>(memory_.get()) : small_.data();
    return {all + begin, size};
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Reads the values that stand at `begin`, with what is beside them.
  [[nodiscard]] value_reader values_at(std::size_t begin, std::size_t values,
                                       std::size_t beside) noexcept {
    if (beside == 0) return value_reader(bytes_at(begin, values));
    return value_reader(bytes_at(begin, values),
                        bytes_at(beside_at(begin + values, beside), beside), memory_);
  }

 private:
  static constexpr std::align_val_t alignment{beside_alignment};

  std::shared_ptr<void> memory_;  ///< null of a small one
  std::size_t size_ = 0;
  std::array<std::byte, largest_small_block> small_;
};

/// The views of a block that is sent: `front`, then the data beside the values, each part
/// at a multiple of 64 behind the start. Lifetime: that of what it refers to.
class sent_block {
 public:
  sent_block() noexcept = default;
  explicit sent_block(std::span<const std::byte> front,
                      std::span<const const_buffer_view> beside = {})
      : front_(front), size_(front.size()) {
    if (beside.empty()) return;
    views_.reserve(2 * beside.size() + 1);
    if (!front.empty()) views_.push_back(front_);
    for (const const_buffer_view& each : beside) {
      pad();
      if (&each == &beside.front()) began_ = size_;
      add(std::span(static_cast<const std::byte*>(each.data()), each.size_bytes()));
    }
    beside_bytes_ = size_ - began_;
  }

  [[nodiscard]] std::span<const const_buffer_view> views() const noexcept {
    if (!views_.empty()) return views_;
    return {&front_, size_ == 0 ? std::size_t{0} : std::size_t{1}};
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t beside_bytes() const noexcept { return beside_bytes_; }

 private:
  static constexpr std::byte zeros[beside_alignment]{};

  void pad() { add(std::span(zeros).first(padding_at(size_, beside_alignment))); }
  void add(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    views_.emplace_back(bytes);
    size_ += bytes.size();
  }

  /// Most blocks have nothing else, and need no list.
  const_buffer_view front_;
  std::vector<const_buffer_view> views_;
  std::size_t size_ = 0;
  std::size_t began_ = 0;
  std::size_t beside_bytes_ = 0;
};

/// Sends a head and the block behind it, if there is any. Lifetime: both live until the
/// await has ended.
template <class Head>
[[nodiscard]] auto send_block(world& over, const Head& head, const sent_block& block,
                              to peer, lane on = {}) {
  return block.views().empty() ? over.send_message(head, peer, on)
                               : over.send_message(head, block.views(), peer, on);
}

/// Sends a command or a reply over a control world. Lifetime: as above.
template <class Head>
[[nodiscard]] auto send_with_block(world& control, const Head& head,
                                   const sent_block& block, to peer) {
  head_and_block<Head> whole{head, {}};
  const bool is_small = block.beside_bytes() == 0 && block.size() <= whole.room;
  if (!is_small)
    return control.send_message(std::move(whole), block.views(), peer, lane(0));
  if (block.size() > 0)
    std::memcpy(whole.small.data(), block.views().front().data(), block.size());
  return control.send_message(std::move(whole), peer, lane(0));
}

/// Returns how many bytes the block of such a message has; 0 if its head speaks of more
/// than there is room for, which no such head fits. A large number would fit one that
/// lies so about what is beside its values.
template <class Head>
[[nodiscard]] std::size_t block_bytes(const head_and_block<Head>& of,
                                      const message_info& told) noexcept {
  if (told.has_payload) return told.bytes;
  const std::size_t small = bytes_without_beside(of.head);
  return small <= of.room ? small : 0;
}

/// Takes the block that stands in such a message, or makes one for its payload. Errors:
/// std::bad_alloc.
template <class Head>
[[nodiscard]] received_block block_of(const head_and_block<Head>& of,
                                      const message_info& told) {
  if (told.has_payload) return received_block(told.bytes);
  return received_block(std::span(of.small).first(block_bytes(of, told)));
}

}  // namespace manyworlds::inline v0::detail
