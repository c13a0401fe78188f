// Data channel: the way to one member of a world, as formation gives it to a backend.
#pragma once

#include <memory>
#include <utility>

#include "io/stream.hpp"
#include "link/slot_pool.hpp"

namespace manyworlds::inline v0::detail {

namespace shm {
class shared_link;
}

/// Holds one world's place in the shm segment of a link, until destroyed.
/// Thread: any; by then nothing of this side may look at the slot. Lifetime: the memory
/// stays mapped while anything holds the link; the slot is used again when both sides
/// have given it back.
class shm_slot {
 public:
  shm_slot() noexcept = default;
  shm_slot(std::shared_ptr<shm::shared_link> link, unsigned index,
           std::shared_ptr<shm::slot_pool> pool = nullptr) noexcept
      : link_(std::move(link)), pool_(std::move(pool)), index_(index) {}
  shm_slot(shm_slot&&) noexcept = default;
  shm_slot& operator=(shm_slot&& other) noexcept {
    std::swap(link_, other.link_);
    std::swap(pool_, other.pool_);
    std::swap(index_, other.index_);
    return *this;
  }
  ~shm_slot() {
    if (pool_) pool_->give_back(index_);
  }

  [[nodiscard]] const std::shared_ptr<shm::shared_link>& link() const noexcept {
    return link_;
  }
  [[nodiscard]] unsigned index() const noexcept { return index_; }
  explicit operator bool() const noexcept { return link_ != nullptr; }

 private:
  std::shared_ptr<shm::shared_link> link_;
  std::shared_ptr<shm::slot_pool> pool_;
  unsigned index_ = 0;
};

/// Holds a connected, authenticated stream, or a slot in shared memory. It is empty for
/// the member itself.
class data_channel {
 public:
  data_channel() noexcept = default;
  data_channel(socket stream) noexcept : stream_(std::move(stream)) {}
  data_channel(shm_slot slot) noexcept : slot_(std::move(slot)) {}

  [[nodiscard]] bool is_open() const noexcept { return stream_.is_open() || has_slot(); }
  [[nodiscard]] bool has_slot() const noexcept { return static_cast<bool>(slot_); }
  [[nodiscard]] socket take_stream() noexcept { return std::move(stream_); }
  [[nodiscard]] shm_slot take_slot() noexcept { return std::move(slot_); }

 private:
  socket stream_;
  shm_slot slot_;
};

}  // namespace manyworlds::inline v0::detail
