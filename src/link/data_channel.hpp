// Data channel: the way to one member of a world, as formation gives it to a backend.
#pragma once

#include <memory>
#include <utility>

#include "io/stream.hpp"

namespace manyworlds::inline v0::detail {

namespace shm {
class shared_link;
}

/// Owner of the slots of a shared link.
class slot_lender {
 public:
  /// Returns a slot that this side no longer uses. Thread: any.
  virtual void give_back(unsigned slot) noexcept = 0;

 protected:
  ~slot_lender() = default;
};

/// Holds one world's place in the memory that two processes share, until destroyed.
/// Thread: any; by then nothing of this side may look at the slot. Lifetime: the memory
/// stays mapped while anything holds the link; the slot is used again when both sides
/// have given it back.
class slot_lease {
 public:
  slot_lease() noexcept = default;
  slot_lease(std::shared_ptr<shm::shared_link> link, unsigned slot,
             std::shared_ptr<slot_lender> lender = nullptr) noexcept
      : link_(std::move(link)), lender_(std::move(lender)), slot_(slot) {}
  slot_lease(slot_lease&&) noexcept = default;
  slot_lease& operator=(slot_lease&& other) noexcept {
    std::swap(link_, other.link_);
    std::swap(lender_, other.lender_);
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~slot_lease() {
    if (lender_) lender_->give_back(slot_);
  }

  [[nodiscard]] const std::shared_ptr<shm::shared_link>& link() const noexcept {
    return link_;
  }
  [[nodiscard]] unsigned slot() const noexcept { return slot_; }
  explicit operator bool() const noexcept { return link_ != nullptr; }

 private:
  std::shared_ptr<shm::shared_link> link_;
  std::shared_ptr<slot_lender> lender_;
  unsigned slot_ = 0;
};

/// Holds a connected, authenticated stream, or a slot in shared memory. It is empty for
/// the member itself.
class data_channel {
 public:
  data_channel() noexcept = default;
  data_channel(socket stream) noexcept : stream_(std::move(stream)) {}
  data_channel(slot_lease slot) noexcept : slot_(std::move(slot)) {}

  [[nodiscard]] bool is_open() const noexcept { return stream_.is_open() || has_slot(); }
  [[nodiscard]] bool has_slot() const noexcept { return static_cast<bool>(slot_); }
  [[nodiscard]] socket take_stream() noexcept { return std::move(stream_); }
  [[nodiscard]] slot_lease take_slot() noexcept { return std::move(slot_); }

 private:
  socket stream_;
  slot_lease slot_;
};

}  // namespace manyworlds::inline v0::detail
