// Pinned slab: one piece of pinned memory, cut into blocks of one size.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

namespace manyworlds::inline v0::detail::nccl {

/// Blocks that were given back are linked through their own memory, so that giving back
/// needs none.
class pinned_slab {
 public:
  pinned_slab(std::byte* base, std::size_t block, std::size_t blocks) noexcept
      : base_(base), block_(block), untouched_(blocks) {}

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::size_t block() const noexcept { return block_; }
  [[nodiscard]] std::size_t size() const noexcept {
    return block_ * (given_ + free_count_ + untouched_);
  }
  [[nodiscard]] bool is_full() const noexcept { return !free_ && untouched_ == 0; }
  [[nodiscard]] bool is_unused() const noexcept { return given_ == 0; }

  /// Precondition: it is not full.
  [[nodiscard]] std::byte* take() noexcept {
    ++given_;
    if (free_) {
      --free_count_;
      free_block* taken = std::exchange(free_, free_->next);
      return reinterpret_cast<std::byte*>(taken);
    }
    --untouched_;
    return base_ + block_ * (given_ + free_count_ - 1);
  }

  void give_back(std::byte* first) noexcept {
    --given_;
    ++free_count_;
    free_ = ::new (static_cast<void*>(first)) free_block{free_};
  }

 private:
  struct free_block {
    free_block* next;
  };

  std::byte* base_;
  std::size_t block_;
  std::size_t given_ = 0;
  std::size_t free_count_ = 0;
  std::size_t untouched_;
  free_block* free_ = nullptr;
};

}  // namespace manyworlds::inline v0::detail::nccl
