#include "weights/read_plan.hpp"

#include <algorithm>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

std::optional<planned_read> read_plan::next() noexcept {
  if (at_ == ranges_.size()) return std::nullopt;
  const weight_range& first = ranges_[at_];
  MW_ASSERT(done_ < first.bytes, "a range that is read has bytes left");
  std::size_t end = at_ + 1;
  std::uint64_t end_byte = first.offset + first.bytes;
  for (; end < ranges_.size(); ++end) {
    const weight_range& other = ranges_[end];
    MW_ASSERT(other.offset >= end_byte, "ranges are in the order of the file");
    const std::uint64_t with_other = other.offset + other.bytes - first.offset;
    if (other.offset - end_byte > widest_gap || with_other > most_bytes) break;
    end_byte = other.offset + other.bytes;
  }
  if (end - at_ > 1) {
    MW_ASSERT(done_ == 0, "a range that takes several reads is joined with no other");
    const planned_read made{first.offset, end_byte - first.offset, 0,
                            ranges_.subspan(at_, end - at_)};
    at_ = end;
    return made;
  }
  const std::uint64_t bytes = std::min(first.bytes - done_, most_bytes);
  const planned_read made{first.offset + done_, bytes, first.into + done_, {}};
  done_ += bytes;
  if (done_ == first.bytes) {
    ++at_;
    done_ = 0;
  }
  return made;
}

}  // namespace manyworlds::inline v0::detail
