// Member places: what a world's member knows of its places in its GPU's order.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "device_job.hpp"
#include "launch_order.hpp"
#include "manyworlds/coro/timer_queue.hpp"
#include "turn_bell.hpp"

namespace manyworlds::inline v0::nccl {

/// A part of its backend, which writes it. On the world's reactor.
struct member_places {
  /// None in a world of one member, and when the world has ended.
  std::optional<order_seat> seat;
  std::shared_ptr<turn_bell> bell;

  std::uint64_t last_proposal = 0;
  /// Proposals that this member cannot launch yet.
  std::deque<std::uint64_t> unanswered;
  std::map<std::uint64_t, time_point> undecided;  ///< promised, and since when
  std::map<std::uint64_t, device_job*> decided;   ///< not launched yet
  std::uint64_t overdue = 0;                      ///< of those, found to be so once
  std::optional<std::uint64_t> connecting;        ///< the place to connect the peers

  bool are_used = false;          ///< rank 0 has said so
  bool is_orderly = false;        ///< nothing launched without a place is left
  bool is_crowd_known = false;    ///< to rank 0
  bool is_made = false;           ///< but for connecting the peers
  bool is_made_known = false;     ///< to rank 0
  bool may_connect = false;       ///< rank 0 has said so
  bool connects_without = false;  ///< without a place
};

}  // namespace manyworlds::inline v0::nccl
