// Tried receives: receives that an engine attempts in each poll before the kernel has to
// wait for them.
#pragma once

#include <cstddef>

#include "io/io_request.hpp"
#include "io/request_list.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

/// The receives that have just begun to wait. Where the peer answers at once, the kernel
/// is never asked to watch their sockets: this saves a system call of ours, and the
/// sender the work of waking us (8 B one way over loopback: 0.7 us of 4.4).
///
/// They are few and leave after some tries, so that a poll costs little where nothing
/// comes. An engine that is about to sleep gives all of them to the kernel.
class tried_receives {
 public:
  [[nodiscard]] bool empty() const noexcept { return list_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

  /// Takes a receive that was attempted and would block. Returns false if the kernel has
  /// to wait for it now.
  [[nodiscard]] bool keep(io_request& r) noexcept {
    MW_ASSERT(r.kind == io_kind::receive, "only receives are tried");
    if (count_ == most || r.engine.tries == most_tries) return false;
    ++r.engine.tries;
    ++count_;
    list_.push(r);
    return true;
  }
  /// Takes the oldest, or returns null.
  [[nodiscard]] io_request* pop() noexcept {
    io_request* const r = list_.front();
    if (r) remove(*r);
    return r;
  }
  void remove(io_request& r) noexcept {
    MW_ASSERT(count_ > 0, "each receive that is tried is counted");
    --count_;
    list_.remove(r);
  }

 private:
  /// An attempt takes 0.15 us.
  static constexpr std::size_t most = 4;
  /// A reactor that spins polls as often in 50 us.
  static constexpr unsigned most_tries = 128;

  request_list list_;
  std::size_t count_ = 0;
};

}  // namespace manyworlds::inline v0::detail
