#include "host/outgoing_batch.hpp"

#include <algorithm>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

// What the peer reads in place of memory that was taken back.
constexpr std::array<std::byte, 16 * 1024> zeros{};

}  // namespace

void outgoing_batch::open() {
  MW_ASSERT(!is_open(), "a batch is opened only when the one before was sent whole");
  std::swap(queued_, sending_);
  queued_.clear();
  gone_ = std::exchange(opened_, appended_);
  has_zeros_ = false;
  first_ = count_ = left_ = user_left_ = behind_user_ = 0;
  if (!sending_.empty()) push(sending_.data(), sending_.size());
}

void outgoing_batch::open_with_slice(frame data, const_view_cursor& cursor,
                                     std::size_t limit, const frame& last) {
  std::array<iovec, slice_entries> slice;
  const std::size_t used = cursor.fill(slice, limit);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < used; ++i) bytes += slice[i].iov_len;
  data.bytes = bytes;
  append(data);
  const bool ends = bytes == cursor.remaining();
  const std::size_t before = queued_.size();
  if (ends) append(last);
  open();

  MW_ASSERT(count_ == 1 && before >= frame_size, "one entry stands before the slice");
  entries_[0].iov_len = before;
  for (std::size_t i = 0; i < used; ++i) entries_[count_++] = slice[i];
  if (ends) entries_[count_++] = {sending_.data() + before, frame_size};
  behind_user_ = ends ? frame_size : 0;
  user_left_ = bytes;
  MW_ASSERT(count_ <= entries_.size(), "a batch has a bounded number of entries");
  left_ = before + bytes + behind_user_;
  cursor.advance(bytes);
}

void outgoing_batch::advance(std::size_t bytes) noexcept {
  MW_ASSERT(bytes <= left_, "no more of a batch is sent than it has");
  left_ -= bytes;
  user_left_ = std::min(user_left_, left_ > behind_user_ ? left_ - behind_user_ : 0);
  if (!has_zeros_) gone_ = opened_ - (left_ - user_left_);
  while (bytes > 0) {
    MW_ASSERT(first_ < count_, "what is left of a batch lies in its entries");
    iovec& entry = entries_[first_];
    const std::size_t step = std::min(bytes, entry.iov_len);
    entry.iov_base = static_cast<std::byte*>(entry.iov_base) + step;
    entry.iov_len -= step;
    bytes -= step;
    if (entry.iov_len == 0) ++first_;
  }
  if (left_ == 0) sending_.clear();
}

void outgoing_batch::release_user_memory() noexcept {
  MW_ASSERT(user_left_ > 0 && left_ >= user_left_ + behind_user_,
            "memory is taken back only from a batch that still refers to it");
  // What stands before the slice is one entry, if it was not sent yet.
  const std::size_t before = left_ - user_left_ - behind_user_;
  std::size_t zeros_left = user_left_;
  const iovec front = entries_[first_];
  first_ = count_ = left_ = 0;
  if (before > 0) push(front.iov_base, before);
  while (zeros_left > 0) {
    const std::size_t step = std::min(zeros_left, zeros.size());
    push(zeros.data(), step);
    zeros_left -= step;
  }
  user_left_ = behind_user_ = 0;
  has_zeros_ = true;
}

void outgoing_batch::shrink() noexcept {
  if (!is_open()) sending_.release();
  if (queued_.empty()) queued_.release();
}

}  // namespace manyworlds::inline v0::detail::host
