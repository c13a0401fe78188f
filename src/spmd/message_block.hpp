// Message block: the bytes behind the head of a command or a reply.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "manyworlds/memory/buffer_view.hpp"
#include "manyworlds/spmd/value_reader.hpp"
#include "manyworlds/world/world.hpp"
#include "spmd/value_layout.hpp"

namespace manyworlds::inline v0::detail {

/// Returns where the data beside values begins that end at `behind`.
[[nodiscard]] constexpr std::size_t beside_at(std::size_t behind,
                                              std::size_t beside) noexcept {
  return beside == 0 ? behind : behind + padding_at(behind, beside_alignment);
}

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

  [[nodiscard]] buffer_view view() noexcept { return bytes_at(0, size_); }
  [[nodiscard]] std::span<std::byte> bytes_at(std::size_t begin,
                                              std::size_t size) noexcept {
    return {static_cast<std::byte*>(memory_.get()) + begin, size};
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

  std::shared_ptr<void> memory_;
  std::size_t size_ = 0;
};

/// The views of a block that is sent: `front`, then the data beside the values, each part
/// at a multiple of 64 behind the start. Lifetime: that of what it refers to.
class sent_block {
 public:
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

}  // namespace manyworlds::inline v0::detail
