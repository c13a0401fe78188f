// Worker post: the keys by which a worker of a role's session waits for its controller.
#pragma once

#include <cstdint>
#include <string>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/mpmd/job_placement.hpp"
#include "manyworlds/store/store.hpp"

namespace manyworlds::inline v0::detail {

/// A worker's process that is free.
struct free_worker {
  std::uint64_t number = 0;       ///< by which it is invited
  std::uint64_t incarnation = 0;  ///< of its instance
  std::int64_t pid = 0;

  [[nodiscard]] std::string text() const;
  /// Returns what `text` gave; what cannot be read is number 0, which is none.
  [[nodiscard]] static free_worker of(const std::string& text) noexcept;
};

/// Each time that a worker is free it takes the next number of its instance, and waits
/// under it. The controller invites the latest one. A number is used once, so that
/// neither an earlier process nor an earlier controller is taken for the present one.
///
/// Errors: none; while the store is away it is tried again (law G-c). Lifetime: this and
/// the store outlive the tasks.
class worker_post {
 public:
  worker_post(store& keys, const instance_id& worker);

  // --- the worker
  /// Says that it is free. Returns its number.
  [[nodiscard]] task<std::uint64_t> announce(std::uint64_t incarnation, std::int64_t pid);
  /// Waits until it is invited, and accepts.
  [[nodiscard]] task<std::string> be_invited(std::uint64_t number);
  /// Waits until a later controller wants it back.
  [[nodiscard]] task<void> wanted_back(std::uint64_t number);

  // --- the controller
  /// Waits until one is free of a higher number than that, and returns the latest.
  [[nodiscard]] task<free_worker> free_after(std::uint64_t number);
  /// Invites it. False: an earlier controller has, and the worker hears that it is wanted
  /// back.
  [[nodiscard]] task<bool> invite(std::uint64_t number, std::string invitation);
  /// Waits until it has accepted.
  [[nodiscard]] task<void> accepted(std::uint64_t number);

 private:
  [[nodiscard]] std::string key(std::uint64_t number, const char* what) const;

  store& keys_;
  const std::string prefix_;
};

}  // namespace manyworlds::inline v0::detail
