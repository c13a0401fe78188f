// Reply buffer: the replies of one call that came to its leader and were not read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "link/wire.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "serve/call_wire.hpp"

namespace manyworlds::inline v0::detail {

/// Keeps replies until they are read, and counts what those that came and those that
/// were read cost of the call's window.
class reply_buffer {
 public:
  void add(bytes reply) {
    const std::uint64_t cost = reply.size() + call_wire::reply_cost;
    replies_.push_back(std::move(reply));
    ++came_;
    cost_of_come_ += cost;
  }
  [[nodiscard]] std::optional<bytes> take() noexcept {
    if (empty()) return std::nullopt;
    bytes reply = std::move(replies_[next_++]);
    // Erase also for a reader that is always one behind.
    if (next_ == replies_.size() || next_ == most_read_kept) {
      replies_.erase(replies_.begin(),
                     replies_.begin() + static_cast<std::ptrdiff_t>(next_));
      next_ = 0;
    }
    ++received_;
    MW_ASSERT(received_ <= came_, "no reply is read before it came");
    cost_of_read_ += reply.size() + call_wire::reply_cost;
    MW_ASSERT(cost_of_read_ <= cost_of_come_, "no more is read than came");
    return reply;
  }
  /// Counts replies of that cost, which will not come, as if they had been read.
  void skip(std::uint64_t cost) noexcept {
    cost_of_come_ += cost;
    cost_of_read_ += cost;
  }
  /// Begins to count anew: another worker gets the call. Precondition: none came.
  void forget_costs() noexcept {
    MW_ASSERT(came_ == 0, "a call that was answered has one worker");
    cost_of_come_ = cost_of_read_ = 0;
  }

  [[nodiscard]] bool empty() const noexcept { return next_ == replies_.size(); }
  [[nodiscard]] std::uint64_t came() const noexcept { return came_; }
  [[nodiscard]] std::uint64_t received() const noexcept { return received_; }
  [[nodiscard]] std::uint64_t cost_of_come() const noexcept { return cost_of_come_; }
  [[nodiscard]] std::uint64_t cost_of_read() const noexcept { return cost_of_read_; }

 private:
  static constexpr std::size_t most_read_kept = 64;

  std::vector<bytes> replies_;
  std::size_t next_ = 0;
  std::uint64_t came_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t cost_of_come_ = 0;
  std::uint64_t cost_of_read_ = 0;
};

}  // namespace manyworlds::inline v0::detail
