// Call watch: one deadline and one stop token, told on the home's thread.
#pragma once

#include <memory>
#include <stop_token>

#include "manyworlds/coro/executor.hpp"
#include "manyworlds/failure.hpp"

namespace manyworlds::inline v0 {

/// Tells at most once that whoever began it has to give up: `timed_out` at the deadline,
/// `cancelled` when the token is triggered, on whatever thread. Neither copied nor moved.
class call_watch : private timer {
 public:
  using function = void (*)(void* context, cause why) noexcept;

  call_watch(function told, void* context) noexcept
      : timer([](timer& t) noexcept {
          static_cast<call_watch&>(t).tell(cause::timed_out);
        }),
        told_(told),
        context_(context) {}
  ~call_watch() { end(); }

  /// On the home's thread. `time_point::max()` is no deadline.
  void begin(executor& home, time_point deadline, std::stop_token token);
  /// Nothing is told any more. Again is allowed.
  void end() noexcept;

 private:
  class stop_notice;

  void tell(cause why) noexcept {
    end();
    told_(context_, why);
  }

  function told_;
  void* context_;
  executor* home_ = nullptr;
  /// It outlives the watch while its post is under way.
  std::shared_ptr<stop_notice> notice_;
};

}  // namespace manyworlds::inline v0
