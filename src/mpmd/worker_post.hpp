// Worker post: the keys by which a worker of a role's session waits for its controller.
#pragma once

#include <cstdint>
#include <string>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/mpmd/job_placement.hpp"
#include "manyworlds/store/store.hpp"
#include "mpmd/persistent_keys.hpp"

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
/// under it. The controller invites the latest one. A number is used once, and bears the
/// incarnations of both: an earlier process does not take the place of a later one, nor
/// an earlier controller the worker of a later one.
///
/// Errors and law G-c: as `persistent_keys`. Lifetime: this and the store outlive the
/// tasks.
class worker_post {
 public:
  worker_post(store& keys, const instance_id& worker);

  // --- the worker
  /// Says that it is free. Returns its number. Errors: std::runtime_error if a later
  /// incarnation of its instance is there.
  [[nodiscard]] task<std::uint64_t> announce(std::uint64_t incarnation, std::int64_t pid);
  /// Waits until it is invited, and accepts.
  [[nodiscard]] task<std::string> be_invited(std::uint64_t number);
  /// Waits until it is told to leave the session to which it was invited.
  [[nodiscard]] task<void> recalled(std::uint64_t number);

  // --- the controller
  /// Returns the latest that was free; number 0 if none was.
  [[nodiscard]] task<free_worker> last();
  /// Waits until one is free of a higher number than that, and returns the latest.
  [[nodiscard]] task<free_worker> free_after(std::uint64_t number);
  /// Invites it, as that incarnation of the controller. False: an earlier one has, and
  /// the worker is recalled. Errors: std::runtime_error if a later one has.
  [[nodiscard]] task<bool> invite(std::uint64_t number, std::uint64_t controller,
                                  std::string invitation);
  /// Tells it to leave its session, and to be free again.
  [[nodiscard]] task<void> recall(std::uint64_t number);
  /// Waits until it has accepted.
  [[nodiscard]] task<void> accepted(std::uint64_t number);

 private:
  [[nodiscard]] std::string key(std::uint64_t number, const char* what) const;

  persistent_keys keys_;
  const std::string prefix_;
};

}  // namespace manyworlds::inline v0::detail
