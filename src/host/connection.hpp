// Connection: the way to one peer, and how it ends. What carries its frames is a stream,
// or memory that both processes share.
#pragma once

#include "core.hpp"
#include "receiver.hpp"
#include "sender.hpp"

namespace manyworlds::inline v0::host {

/// What a connection tells its backend.
class connection_events {
 public:
  virtual const char* collective_frame(rank_t peer, const frame& f) = 0;
  virtual void peer_left(rank_t peer) = 0;
  /// It knows that we have left, and may end.
  virtual void peer_knows(rank_t peer) = 0;
  /// No request is in flight and none will be.
  virtual void came_to_rest() noexcept = 0;

 protected:
  ~connection_events() = default;
};

class connection : protected frame_handler {
 public:
  connection(core& shared, connection_events& events, rank_t peer) noexcept
      : core_(shared), events_(events), peer_(peer) {}
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;
  virtual ~connection() = default;

  /// Starts receiving.
  virtual void open() noexcept = 0;

  // Operations. Whoever calls these calls `pump` when it is done with them.
  [[nodiscard]] virtual class sender& sending() noexcept = 0;
  [[nodiscard]] virtual class receiver& receiving() noexcept = 0;
  /// Sends what there is to send and can be sent now; not in the midst of a receive.
  virtual void pump() noexcept = 0;
  /// Asks for memory back that was given up and that the kernel holds.
  virtual void cancel_given_up() noexcept = 0;

  [[nodiscard]] bool has_left() const noexcept { return peer_left_; }
  /// Counts what was queued for the peer, and says of such a count whether all of it is
  /// where it gets to the peer without this thread. True of what carries nothing more.
  [[nodiscard]] virtual std::uint64_t queued() const noexcept = 0;
  [[nodiscard]] virtual bool has_gone(std::uint64_t queued) const noexcept = 0;

  // Leaving, see host_backend::leave.
  void leave();
  void abandon_sends();
  /// At once; what is in flight ends first.
  virtual void stop() noexcept = 0;
  /// At rest and closed: fails what a leave's deadline has left over.
  virtual void end_cut_short() = 0;
  [[nodiscard]] virtual bool at_rest() const noexcept = 0;
  [[nodiscard]] virtual bool is_open() const noexcept = 0;

  // Timers of the backend.
  [[nodiscard]] virtual bool must_watch() noexcept = 0;
  /// Looks for stalled and settling transfers; `late`: we ourselves were not looking.
  virtual void look(time_point now, bool late) = 0;
  virtual void tidy() = 0;

 protected:
  /// Nothing unwinds through the engine: what we have no memory for ends the world.
  template <class Step>
  void guarded(Step&& step) noexcept {
    try {
      step();
    } catch (const std::exception& e) {
      if (!core_.stopping)
        core_.events.must_break(peer_, cause::out_of_resources, e.what());
    }
  }
  const char* handle(const frame& f) override;
  /// A `left` that answers no leave of ours. Null, or what is wrong with it.
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
  connection_events& events_;
  const rank_t peer_;
  bool leaving_ = false;
  bool said_leave_ = false;
  bool peer_left_ = false;   ///< said `leave`
  bool peer_knows_ = false;  ///< said `left`
  bool stopped_ = false;
  bool ended_ = false;  ///< it carries nothing any more
};

}  // namespace manyworlds::inline v0::host
