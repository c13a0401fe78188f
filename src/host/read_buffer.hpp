// Read buffer: what a stream's bytes are read into.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <new>

#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail::host {

/// Has room for the largest message that comes unasked. Most channels are at rest most of
/// the time, or see small messages alone, which fill its first page: the memory of the
/// others goes back to the machine when they were not needed for a while. Thread: the
/// reactor.
class read_buffer {
 public:
  static constexpr std::size_t page = 4096;
  /// How long the memory is kept: to have it again costs 5 us.
  static constexpr duration until_rest = std::chrono::milliseconds(100);

  explicit read_buffer(std::size_t least)
      : capacity_((least + page - 1) / page * page),
        bytes_(static_cast<std::byte*>(::operator new(capacity_, alignment))) {}

  [[nodiscard]] std::byte* data() const noexcept { return bytes_.get(); }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  void note_written(std::size_t end, time_point now) noexcept {
    MW_ASSERT(end <= capacity_, "no more is written than there is room for");
    if (end <= page) return;
    is_touched_ = true;
    last_touched_ = now;
  }

  /// Returns whether it has memory behind the first page.
  [[nodiscard]] bool is_touched() const noexcept { return is_touched_; }
  [[nodiscard]] bool may_rest(time_point now) const noexcept {
    return is_touched_ && now - last_touched_ >= until_rest;
  }
  /// Gives back what was not needed for that long. Precondition: it holds nothing, and
  /// nothing is being read into it.
  void rest(time_point now) noexcept {
    if (!may_rest(now)) return;
    is_touched_ = false;
    // Larger pages may hold what is not of this buffer.
    if (static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) == page)
      (void)::madvise(data() + page, capacity_ - page, MADV_DONTNEED);
  }

 private:
  static constexpr std::align_val_t alignment{page};
  struct release {
    void operator()(std::byte* bytes) const noexcept {
      ::operator delete(bytes, alignment);
    }
  };

  std::size_t capacity_;
  std::unique_ptr<std::byte, release> bytes_;
  bool is_touched_ = false;
  time_point last_touched_{};
};

}  // namespace manyworlds::inline v0::detail::host
