// Byte queue: memory that frames are written to without clearing it first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

class byte_queue {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::byte* data() noexcept { return bytes_.get(); }

  void append(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    MW_ASSERT(bytes.data() != nullptr, "bytes that are appended lie somewhere");
    reserve(size_ + bytes.size());
    std::memcpy(bytes_.get() + size_, bytes.data(), bytes.size());
    size_ += bytes.size();
  }
  void reserve(std::size_t wanted) {
    if (wanted <= capacity_) return;
    wanted = std::max({wanted, 2 * capacity_, std::size_t{1024}});
    auto larger = std::make_unique_for_overwrite<std::byte[]>(wanted);
    if (size_ > 0) std::memcpy(larger.get(), bytes_.get(), size_);
    bytes_ = std::move(larger);
    capacity_ = wanted;
  }
  void clear() noexcept { size_ = 0; }
  void release() noexcept {
    bytes_.reset();
    size_ = capacity_ = 0;
  }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace manyworlds::inline v0::detail::host
