// Channel: the way of one world to one peer, over a stream or shared memory, and how it
// ends.
#pragma once

#include "host/core.hpp"
#include "host/receiver.hpp"
#include "host/sender.hpp"

namespace manyworlds::inline v0::detail::host {

/// Carries one world's frames to and from one peer. Its halves, which it owns, know the
/// messages; it knows when both may go on, and how they end.
class channel {
 public:
  channel(core& shared, rank_t peer) noexcept : core_(shared), peer_(peer) {}
  channel(const channel&) = delete;
  channel& operator=(const channel&) = delete;
  virtual ~channel() = default;

  /// Starts receiving.
  virtual void open() noexcept = 0;

  // Operations. A caller of these calls `pump` afterwards.
  [[nodiscard]] virtual class sender& sending() noexcept = 0;
  [[nodiscard]] virtual class receiver& receiving() noexcept = 0;
  /// Sends a message that can be accepted at once. Returns false, with nothing done, if
  /// it must be started as any other.
  [[nodiscard]] virtual bool try_send(operation&) { return false; }
  /// Sends what can be sent now. Does nothing in the midst of a receive.
  virtual void pump() noexcept = 0;
  /// Asks for the return of given-up memory that the kernel holds.
  virtual void cancel_given_up() noexcept = 0;

  [[nodiscard]] bool has_left() const noexcept { return peer_left_; }
  /// `queued` counts what was queued for the peer. `has_gone` returns whether all of
  /// such a count reaches the peer without this thread; true for a channel that
  /// carries nothing more.
  [[nodiscard]] virtual std::uint64_t queued() const noexcept = 0;
  [[nodiscard]] virtual bool has_gone(std::uint64_t queued) const noexcept = 0;

  /// Handles a frame that is not about messages. Returns null, or what is wrong with it.
  [[nodiscard]] const char* handle(const frame& f);

  // Leaving, see host_backend::leave.
  void leave();
  void abandon_sends();
  /// Stops at once; requests in flight end first.
  virtual void stop() noexcept = 0;
  /// Fails what a leave's deadline has left over. Precondition: at rest and closed.
  virtual void end_cut_short() = 0;
  [[nodiscard]] virtual bool at_rest() const noexcept = 0;
  [[nodiscard]] virtual bool is_open() const noexcept = 0;

  /// A step was cut short: what it has lost must not be followed by anything (law 5).
  /// The world breaks only when its threads have heard of it.
  void carry_nothing_more() noexcept;

  // Timers of the backend.
  [[nodiscard]] virtual bool must_watch() noexcept = 0;
  /// Looks for stalled and settling transfers. `late` says that this side itself did
  /// not look.
  virtual void look(time_point now, bool late) = 0;
  virtual void tidy() = 0;

 protected:
  /// Ends the world if memory is short: no exception unwinds through the engine.
  template <class Step>
  void guarded(Step&& step) noexcept {
    try {
      step();
    } catch (const std::exception& e) {
      // A channel that stops may end a leave: that is no reason to hide why.
      const bool was_over = core_.stopping;
      carry_nothing_more();
      if (!was_over) core_.events.must_break(peer_, cause::out_of_resources, e.what());
    }
  }
  /// Handles a `left` that answers no leave of ours. Returns null, or what is wrong
  /// with it.
  [[nodiscard]] virtual const char* confirmed() {
    return "an answer to a leave that was not made";
  }
  void say_leave_when_drained();
  [[nodiscard]] bool nothing_follows() const noexcept {
    return peer_left_ || peer_knows_;
  }
  void report_stall(const char* direction);
  void report_violation(const char* what);

  core& core_;
  const rank_t peer_;
  bool leaving_ = false;
  bool said_leave_ = false;
  bool peer_left_ = false;   ///< the peer has said `leave`
  bool peer_knows_ = false;  ///< the peer has said `left`
  bool stopped_ = false;
  bool ended_ = false;  ///< it carries nothing more
};

}  // namespace manyworlds::inline v0::detail::host
