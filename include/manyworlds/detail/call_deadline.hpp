// Call deadline: one deadline and one stop token, reported on the home's thread.
#pragma once

#include <memory>
#include <stop_token>

#include "manyworlds/coro/executor.hpp"
#include "manyworlds/failure.hpp"

namespace manyworlds::inline v0::detail {

/// Calls `told` at most once: with `timed_out` at the deadline, with `cancelled` when
/// the token is triggered, on any thread. The owner has to give up then. Neither copied
/// nor moved.
class call_deadline : private timer {
 public:
  using function = void (*)(void* context, cause why) noexcept;

  call_deadline(function told, void* context) noexcept
      : timer([](timer& t) noexcept {
          static_cast<call_deadline&>(t).tell(cause::timed_out);
        }),
        told_(told),
        context_(context) {}
  ~call_deadline() { end(); }

  /// Begins. `time_point::max()` is no deadline. Thread: the home's.
  /// Precondition: it has not begun, or has ended.
  void begin(executor& home, time_point deadline, std::stop_token token);
  /// Disarms it: nothing is told afterwards. Idempotent.
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
  /// The notice outlives its owner while its post is under way.
  std::shared_ptr<stop_notice> notice_;
};

template <auto Function>
class member_deadline;

/// `member_deadline<&owner::given_up> deadline_{*this};`
template <class Owner, void (Owner::*Function)(cause) noexcept>
class member_deadline<Function> final : public call_deadline {
 public:
  explicit member_deadline(Owner& of) noexcept
      : call_deadline(
            [](void* owner, cause why) noexcept {
              (static_cast<Owner*>(owner)->*Function)(why);
            },
            &of) {}
};

}  // namespace manyworlds::inline v0::detail
