// Incarnation claim: the key by which an instance's process hears that another one has
// followed it.
#pragma once

#include <cstdint>
#include <string>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/mpmd/job_placement.hpp"
#include "mpmd/persistent_keys.hpp"

namespace manyworlds::inline v0::detail {

/// Law G-a: of an instance the newest incarnation alone is in worlds. A node that its
/// master has lost may be cut off from that master alone: its instances run on, and hold
/// their ranks, while their successors start elsewhere. So each incarnation says in the
/// meeting store that it is there, and the one before it ends.
///
/// One that is cut off from the store too hears nothing, and a successor waits for its
/// rank: until the cut heals, or its agent ends it (the job's `absence`).
///
/// While the store is away an operation is tried again (law G-c). Errors:
/// std::runtime_error if a later incarnation is there; store_error for what will not
/// pass. Lifetime: this and the store outlive the tasks.
class incarnation_claim {
 public:
  incarnation_claim(store& keys, const instance_id& instance, std::uint64_t incarnation);

  /// Says that this incarnation is there.
  [[nodiscard]] task<void> take();
  /// Waits until a later one says the same, and throws. Precondition: it was taken.
  [[nodiscard]] task<void> until_followed();

 private:
  [[nodiscard]] std::string key_of_follower(std::uint64_t of) const;
  void refuse_followed(std::uint64_t latest) const;

  persistent_keys keys_;
  const instance_id instance_;
  const std::uint64_t incarnation_;
  const std::string prefix_;
};

}  // namespace manyworlds::inline v0::detail
