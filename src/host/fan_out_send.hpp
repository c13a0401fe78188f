// Fan-out send: one send to several members, of which each part ends by itself.
#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <string>

#include "host/operation_queue.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/operation.hpp"

namespace manyworlds::inline v0::detail {
class host_backend;
}

namespace manyworlds::inline v0::detail::host {

class fan_out_send;
/// The fan-out sends of one backend that have not ended. Lifetime: each removes itself at
/// its end; the others go with the backend, which ends nothing by then.
using fan_out_sends = std::list<fan_out_send>;

/// Holds the parts of one send that could not be accepted at once. The send ends when the
/// last part has: with the first failure among them, if there is one.
class fan_out_send {
 public:
  fan_out_send(fan_out_sends& all, operation& whole, host_backend& by) noexcept
      : all_(all), whole_(whole), by_(by) {}
  fan_out_send(const fan_out_send&) = delete;
  fan_out_send& operator=(const fan_out_send&) = delete;

  /// Adds the part for a member. Precondition: none was started.
  void add(rank_t target) { parts_.emplace_back(*this, target); }
  /// Starts the parts. Lifetime: if all end at once, this object is gone afterwards.
  void start();
  /// Gives up the parts that are under way. Returns true if that took back what was left:
  /// the operation will not be ended, and this object is gone. Otherwise it ends, now or
  /// later: as done if all members have it, or with the failure of one.
  [[nodiscard]] bool withdraw();

 private:
  struct part final : operation {
    part(fan_out_send& of, rank_t target) noexcept;
    fan_out_send& owner;
    bool is_under_way = false;
  };
  void note_end(part& p, operation_end how) noexcept;
  void end_whole() noexcept;
  void remove() noexcept;

  fan_out_sends& all_;
  operation& whole_;
  host_backend& by_;
  std::deque<part> parts_;
  std::size_t left_ = 0;
  /// Parts are being started or given up: what ends meanwhile does not end the send.
  bool is_busy_ = false;
  bool was_withdrawn_ = false;  ///< at least one part
};

}  // namespace manyworlds::inline v0::detail::host
