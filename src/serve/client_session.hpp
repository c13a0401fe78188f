// Client session: the leader's end of one worker's world, while it is served.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/serve/dispatcher.hpp"
#include "serve/call_peer.hpp"
#include "serve/call_state.hpp"
#include "serve/call_wire.hpp"

namespace manyworlds::inline v0::detail {

/// The leader's end of one worker's world. When it ends, the dispatcher decides what
/// happens to the calls of its slots. Thread: the dispatcher's reactor.
class client_session {
 public:
  client_session(dispatch_core& core, world& w, worker_id id);
  client_session(const client_session&) = delete;
  client_session& operator=(const client_session&) = delete;
  ~client_session();

  /// Serves until it is drained or stopped, or throws the world's failure.
  [[nodiscard]] task<void> run();

  /// Returns whether the worker's hello has come.
  [[nodiscard]] bool is_ready() const noexcept { return !slots_.empty(); }
  /// Returns whether it may be given calls, when it has room. It may not from the break
  /// of its world on, which its reader learns later.
  [[nodiscard]] bool is_member() const noexcept {
    return is_ready() && !is_draining() && !has_ended();
  }
  /// Returns whether it gets nothing new, by the leader's will or by the worker's.
  [[nodiscard]] bool is_draining() const noexcept { return is_draining_ || is_leaving_; }
  [[nodiscard]] bool is_suspect() const noexcept { return in().is_suspect(peer()); }
  /// Returns whether it was not heard from for half the time after which it is suspect.
  /// Several heartbeats were missed by then: it may be stopped already.
  [[nodiscard]] bool is_silent() const noexcept;
  [[nodiscard]] bool is_idle() const noexcept { return free_.size() == slots_.size(); }
  [[nodiscard]] bool has_room() const noexcept { return is_member() && !free_.empty(); }
  [[nodiscard]] worker_id id() const noexcept { return id_; }
  [[nodiscard]] world& in() const noexcept { return peer_.in(); }
  [[nodiscard]] rank_t peer() const noexcept { return peer_.rank(); }
  [[nodiscard]] std::uint64_t largest_request() const noexcept {
    return largest_request_;
  }
  [[nodiscard]] worker_status status() const;
  /// Returns why it ends, or has ended.
  [[nodiscard]] failure end_cause() const;

  /// Describes the worker, as a failure without a cause.
  [[nodiscard]] failure describe_worker() const;
  /// Calls `each(call_state&)` for the calls that it has.
  template <class Each>
  void for_each_call(Each&& each) const {
    for (const slot& s : slots_) {
      if (s.call) each(*s.call);
    }
  }

  /// Gives it a call. Precondition: `has_room()`.
  void assign(call_state& c) noexcept;
  /// Frees a slot: its request was not sent, and never will be.
  void release(std::uint32_t slot) noexcept;
  /// Cancels a slot's call. The slot stays taken until the worker has ended the call,
  /// or says that it never got it.
  void cancel(std::uint32_t slot) noexcept;
  /// Notes that some of the slot's replies were read.
  void note_read(std::uint32_t slot) noexcept;
  [[nodiscard]] bool has_ended() const noexcept { return peer_.is_over(); }

  void begin_drain() noexcept;
  void stop() noexcept { over_.set(); }
  void give_up_calls(const failure& why) noexcept;
  /// Returns an event that is set when this is gone, and outlives it.
  [[nodiscard]] const std::shared_ptr<event>& gone() const noexcept { return gone_; }
  /// Takes the call of any slot from it. Returns null if no slot has one.
  [[nodiscard]] call_state* take_any_call() noexcept;

 private:
  struct slot {
    call_state* call = nullptr;
    bool is_taken = false;
    bool is_due = false;  ///< stands in `due_`
    bool is_cancelled = false;
    /// Id of the call that it has, or had last.
    std::uint64_t wire_id = 0;
    std::uint64_t credited = 0;
  };

  [[nodiscard]] task<void> read();
  [[nodiscard]] task<void> write();
  void take_hello(const call_wire::answer_head& head);
  [[nodiscard]] slot& taken_slot(const call_wire::answer_head& head);
  /// As above; refuses an answer to a call other than before.
  [[nodiscard]] slot& taken_slot(const call_wire::answer_head& head,
                                 std::uint64_t wire_id);
  void take_sent(const call_wire::answer_head& head);
  [[nodiscard]] task<void> take_reply(call_wire::answer_head head, std::size_t size);
  [[nodiscard]] task<void> take_end(call_wire::answer_head head, std::size_t size);
  void take_done(const call_wire::answer_head& head);
  void take_given_back(const call_wire::answer_head& head);
  void take_draining();
  /// Returns the slot's call if the answer is wanted; else counts a late answer and
  /// returns null.
  [[nodiscard]] call_state* wanted_call(std::uint32_t number) noexcept;
  void set_free(std::uint32_t number) noexcept;
  void set_due(std::uint32_t number) noexcept;
  void take_due(std::vector<call_wire::control_entry>& entries);

  dispatch_core& core_;
  call_peer peer_;
  const worker_id id_;
  std::vector<slot> slots_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> due_;
  event something_due_;
  event over_;
  std::shared_ptr<event> gone_ = std::make_shared<event>();
  std::uint64_t largest_request_ = 0;
  std::uint64_t load_ = 0;
  std::uint64_t calls_ = 0;
  bool is_draining_ = false;
  /// The worker takes no new calls, and will leave.
  bool is_leaving_ = false;
  bool is_no_more_due_ = false;
};

}  // namespace manyworlds::inline v0::detail
