// Worker replacer: brings lost workers back, asked or unasked.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <string>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0::detail {

class session_core;

/// Starts the next incarnation of a worker, waits until it is there, and runs again what
/// is replayable. One replacement of a worker goes on at a time: all who ask for it
/// meanwhile share it, so nothing is replayed twice. It goes on when they give up.
///
/// Part of its session core. Thread: the reactor.
class worker_replacer {
 public:
  explicit worker_replacer(session_core& core) noexcept : core_(core) {}
  worker_replacer(const worker_replacer&) = delete;
  worker_replacer& operator=(const worker_replacer&) = delete;

  /// Ends when the replacement has what it needs. Errors: world_error (`not_joined`,
  /// `closed`); call_error of what was made again.
  [[nodiscard]] static task<void> replace(std::shared_ptr<session_core> core, int worker);
  /// Replaces a worker that was lost, as far as the session's budget goes.
  void note_lost(int worker);
  /// Is told that the session ends: those who wait are told so.
  void end() noexcept;

 private:
  /// A replacement that is under way.
  struct attempt {
    event over;
    std::exception_ptr error;
  };
  /// What was done unasked for one worker.
  struct record {
    std::deque<time_point> times;  ///< when they began, within the budget's period
    duration pause{0};             ///< before the last one
    bool is_under_way = false;
  };

  [[nodiscard]] std::shared_ptr<attempt> begin(int worker);
  [[nodiscard]] task<void> run(int worker, std::shared_ptr<attempt> made);
  [[nodiscard]] task<void> bring(int worker);
  [[nodiscard]] task<void> replay(int worker);
  [[nodiscard]] task<void> replace_unasked(int worker);
  void tell_used_up(int worker) const;
  /// Returns whether there is one left, and takes it.
  [[nodiscard]] bool take_one(record& of);

  session_core& core_;
  std::map<int, std::shared_ptr<attempt>> under_way_;
  std::map<int, record> unasked_;
};

}  // namespace manyworlds::inline v0::detail
