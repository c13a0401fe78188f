// Call watch: says what the workers do in calls that last.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "manyworlds/coro/task.hpp"
#include "observe/reporter.hpp"

namespace manyworlds::inline v0::detail {

class session_core;

/// Once a second it asks the workers, if a call is open for longer than that. So a dump
/// tells what each of them is in, and waits for; a call that is open for five seconds is
/// named in the log, once.
///
/// Part of its session core. Thread: the reactor.
class call_watch {
 public:
  explicit call_watch(session_core& core) noexcept : core_(core) {}
  call_watch(const call_watch&) = delete;
  call_watch& operator=(const call_watch&) = delete;

  /// Lets dumps of its runtime tell of the session while that is there.
  void show(const std::weak_ptr<session_core>& session);
  /// Asks, until it is cancelled.
  [[nodiscard]] task<void> run();
  [[nodiscard]] session_report report() const;

 private:
  /// The seconds after which a call is named.
  static constexpr std::size_t patience = 5;

  [[nodiscard]] std::string doing() const;
  void look();

  session_core& core_;
  std::shared_ptr<const reporter::session_source> shown_;
  /// The latest call at each of the last looks, the newest first.
  std::array<std::uint64_t, patience> latest_{};
  std::uint64_t named_ = 0;
};

}  // namespace manyworlds::inline v0::detail
