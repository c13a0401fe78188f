// Call queue: the calls of one dispatcher that wait for a worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "manyworlds/detail/assertion.hpp"
#include "serve/call_state.hpp"

namespace manyworlds::inline v0::detail {

/// The calls that wait, in the order of their admission. When something has changed
/// each is offered once to the workers, in a round that may take several turns. A call
/// that joins or leaves meanwhile does not disturb it.
class call_queue {
 public:
  void add(call_state& c) {
    [[maybe_unused]] const bool is_new = calls_.emplace(c.number(), &c).second;
    MW_ASSERT(is_new, "a call stands in the queue once");
  }
  void remove(const call_state& c) noexcept {
    [[maybe_unused]] const auto erased = calls_.erase(c.number());
    MW_ASSERT(erased == 1, "a call that is queued stands in the queue");
    if (calls_.empty()) to_offer_ = 0;
  }
  [[nodiscard]] bool empty() const noexcept { return calls_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return calls_.size(); }
  [[nodiscard]] call_state& front() const noexcept { return *calls_.begin()->second; }
  /// Calls `each(call_state&)`, which may remove that call.
  template <class Each>
  void for_each(Each&& each) const {
    for (auto at = calls_.begin(); at != calls_.end();) each(*(at++)->second);
  }

  /// Offers every call once from now on. Returns false if a round goes on already.
  [[nodiscard]] bool begin_round() noexcept {
    const bool goes_on = is_in_round();
    to_offer_ = calls_.size();
    return !goes_on;
  }
  [[nodiscard]] bool is_in_round() const noexcept { return to_offer_ > 0; }
  /// Returns the next call of the round. It is found by its number, since a pick may
  /// have ended any of them. Precondition: `is_in_round()`.
  [[nodiscard]] call_state& take_offer() noexcept {
    MW_ASSERT(to_offer_ > 0 && !calls_.empty(), "calls are offered only while some wait");
    auto at = calls_.lower_bound(next_);
    if (at == calls_.end()) at = calls_.begin();
    next_ = at->first + 1;
    --to_offer_;
    return *at->second;
  }
  /// Ends the round: no worker has room. The next one begins with the oldest call.
  void end_round() noexcept {
    to_offer_ = 0;
    next_ = 0;
  }

 private:
  std::map<std::uint64_t, call_state*> calls_;
  /// Calls of the round that are still to be offered, and the number from which on.
  std::size_t to_offer_ = 0;
  std::uint64_t next_ = 0;
};

}  // namespace manyworlds::inline v0::detail
