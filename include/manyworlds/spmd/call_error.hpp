// Call error: why a call of a session ended, on all of its workers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/failure.hpp"
#include "manyworlds/source_position.hpp"

namespace manyworlds::inline v0 {

/// What one worker said of a call that failed.
struct worker_text {
  int worker = 0;
  std::uint64_t incarnation = 1;
  /// `handler_failed` for an exception, which `text` names; `register_lost` for an
  /// argument; the cause of the loss for a worker that was lost.
  enum cause cause = cause::none;
  std::string text;
};

/// Thrown by the await on a call that has failed on one worker at least. It has ended on
/// all workers of its mesh then, or is being ended: none goes on with it (S-b).
///
///     try {
///       co_await tp.call(mlp, weights, input);
///     } catch (const mw::call_error& e) {
///       // "tp.4f0c: rank 2 failed in its handler, in call 17 of mlp (worker 2, ...)"
///       for (const mw::worker_text& each : e.workers()) use(each.worker, each.text);
///     }
///
/// `failure()` has the mesh's world in `world`, the worker that failed first in `rank`,
/// and the call in `call`. Copies share their content.
class MANYWORLDS_EXPORT call_error : public world_error {
 public:
  /// The library makes it. `told` begins with the first that failed.
  call_error(manyworlds::failure why, std::uint64_t call, std::string function,
             source_position where, std::vector<worker_text> told)
      : world_error(std::move(why)),
        facts_(std::make_shared<const facts>(
            facts{call, std::move(function), where, std::move(told)})) {}

  /// Returns the call's number in its session: 1 for the first.
  [[nodiscard]] std::uint64_t call() const noexcept { return facts_->call; }
  [[nodiscard]] const std::string& function() const noexcept { return facts_->function; }
  /// Returns where the controller awaited it, or where the call's `from`, `all` or
  /// `within` stands. Of a call that `when_all` or `scope::spawn` awaits, give it there:
  /// otherwise it is a line of the library.
  [[nodiscard]] source_position where() const noexcept { return facts_->where; }
  /// Returns what the workers said that failed by themselves, the first one first. Where
  /// an argument was never made, this is what they said of the call that should have made
  /// it. It is empty if none did: the call was given up, or refused before any worker got
  /// it.
  [[nodiscard]] const std::vector<worker_text>& workers() const noexcept {
    return facts_->told;
  }

 private:
  struct facts {
    std::uint64_t call;
    std::string function;
    source_position where;
    std::vector<worker_text> told;
  };
  std::shared_ptr<const facts> facts_;
};

}  // namespace manyworlds::inline v0
