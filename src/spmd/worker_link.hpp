// Worker link: the controller's end of one worker: what goes to it, and what comes back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/spmd/session.hpp"
#include "manyworlds/world/world.hpp"
#include "manyworlds/world/world_event.hpp"
#include "spmd/call_record.hpp"
#include "spmd/message_block.hpp"
#include "spmd/node_relay.hpp"
#include "spmd/received_command.hpp"
#include "spmd/store_question.hpp"

namespace manyworlds::inline v0::detail {

class local_places;

/// Law 4: the caller has its memory back when the send has ended, however it does.
class being_read {
 public:
  being_read(call_record& call, call_part& part) noexcept : call_(call), part_(part) {
    part_.is_being_read = true;
  }
  being_read(const being_read&) = delete;
  being_read& operator=(const being_read&) = delete;
  ~being_read();

 private:
  call_record& call_;
  call_part& part_;
};

/// Commands wait in its outbox until the window has room. `end`, `resume`, `alert`, `ask`
/// and `answer` pass those that wait, and are sent next. A worker of a node is reached by
/// the relay of that node, which takes them from here. Thread: the session's reactor.
class worker_link {
 public:
  worker_link(session_core& core, int id) noexcept : core_(core), id_(id) {}
  worker_link(const worker_link&) = delete;
  worker_link& operator=(const worker_link&) = delete;

  [[nodiscard]] int id() const noexcept { return id_; }
  [[nodiscard]] std::uint64_t incarnation() const noexcept { return incarnation_; }
  [[nodiscard]] worker_state state() const noexcept { return state_; }
  [[nodiscard]] const std::string& loss() const noexcept { return loss_; }
  [[nodiscard]] const failure& why_lost() const noexcept { return why_lost_; }

  /// Queues the part of a call.
  void push(command_wire::command_head head, std::shared_ptr<call_record> call);
  /// Queues a command without a call. `block` stands behind its head.
  void push(command_wire::command_head head, std::vector<std::byte> block);
  /// Takes a call out that was not begun to be sent. Precondition: it is there. True: the
  /// worker has earlier ones to do, and says by a reply to it when it has done them.
  [[nodiscard]] bool take_back(const call_record& call);
  /// Keeps back the calls behind this one, until `let_go`: its workers may have to form
  /// their world anew before.
  void hold_behind(std::uint64_t call) { held_behind_.insert(call); }
  void let_go(std::uint64_t call) {
    held_behind_.erase(call);
    wake();
  }
  /// Tells it at once, in front of all that waits. `block` stands behind the head.
  void tell(command_wire::command_head head, std::vector<std::byte> block = {});
  /// Sends no more calls.
  void close();

  /// Serves one incarnation, which is started and joins, until it is lost or has ended
  /// in order. Errors: why it could not join, or why it was lost.
  [[nodiscard]] task<void> serve(std::uint64_t incarnation);
  /// Is set when it is there, or cannot be.
  [[nodiscard]] event& decided() noexcept { return decided_; }
  /// Is set when another incarnation is wanted.
  [[nodiscard]] event& wanted() noexcept { return wanted_; }
  /// Ends the incarnation that is there by force, and waits until it is noted as lost.
  /// Errors: none.
  [[nodiscard]] task<void> end_by_force();
  /// Notes that it does not end that call; until it has.
  void note_stuck(const call_record& in);
  /// Returns the call that it does not end; empty if there is none.
  [[nodiscard]] const std::string& stuck_in() const noexcept { return stuck_in_; }
  [[nodiscard]] bool is_stuck() const noexcept { return !stuck_in_.empty(); }
  /// Asks what it does, unless it owes an answer.
  void ask();
  /// What it has said last, and when.
  struct status {
    worker_status what;
    time_point when;
  };
  [[nodiscard]] const status& said() const noexcept { return said_; }
  /// Returns since when it owes an answer.
  [[nodiscard]] std::optional<time_point> asked() const noexcept { return asked_; }
  /// Returns how many commands it was not sent yet.
  [[nodiscard]] std::size_t waiting() const noexcept { return outbox_.size(); }
  /// Returns how many it was sent, of which it has not said that they are done.
  [[nodiscard]] std::size_t sent() const noexcept { return flights_.size(); }
  /// Returns the first of these that is a call, or null.
  [[nodiscard]] call_record* at_call() const noexcept;
  /// Notes that it is being lost: what ended it is not known yet.
  void note_leaving() noexcept { is_leaving_ = true; }
  [[nodiscard]] bool is_leaving() const noexcept { return is_leaving_; }
  /// Notes that it is gone.
  void lose(failure why, std::string how);
  /// Returns whether an event tells that this worker is silent, or heard again.
  [[nodiscard]] bool is_meant_by(const world_event& e) const noexcept;
  /// Tells of it.
  void note_silence(bool is_suspect) noexcept;

  // --- for the relay of its node

  /// A command that waits.
  struct outgoing {
    command_wire::command_head head;
    std::shared_ptr<call_record> call;  ///< null of all others
    std::vector<std::byte> block;
    std::uint64_t order = 0;  ///< over all workers of its node

    /// Returns what stands behind its head. Lifetime: that of this, and of the caller's
    /// memory.
    [[nodiscard]] sent_block whole() const {
      return call ? sent_block(call->front, call->values.beside()) : sent_block(block);
    }
    /// Returns whether both say the same to two workers.
    [[nodiscard]] bool is_as(const outgoing& other) const noexcept;
  };
  [[nodiscard]] bool may_relay(bool urgent) const noexcept {
    return state_ == worker_state::ready && (urgent ? !urgent_.empty() : may_send_next());
  }
  /// Precondition: there is one.
  [[nodiscard]] const outgoing& next(bool urgent) const noexcept {
    return urgent ? urgent_.front() : outbox_.front();
  }
  [[nodiscard]] outgoing take(bool urgent);
  /// Counts a command as sent. Returns the part of its call that is read from now on;
  /// null if it is of no call.
  [[nodiscard]] call_part* note_sent(outgoing& next, const sent_block& block);
  /// Returns how many urgent commands it was told.
  [[nodiscard]] std::uint64_t told() const noexcept { return told_; }
  /// Takes what its agent says of this incarnation.
  void take_word(const node_wire::word_of& head, received_block block);
  /// Notes that it is not reached any longer. The first one counts.
  void end_relayed(failure why) noexcept;

 private:
  struct flight {
    std::shared_ptr<call_record> call;
    std::size_t bytes;
  };

  void wake() noexcept {
    wake_.set();
    if (relay_ != nullptr) relay_->wake();
  }
  [[nodiscard]] std::uint64_t next_order() noexcept {
    return relay_ != nullptr ? relay_->next_order() : 0;
  }
  void fail(const std::string& why);
  [[nodiscard]] task<void> join();
  [[nodiscard]] task<void> meet();
  [[nodiscard]] task<void> be_relayed();
  [[nodiscard]] task<void> write();
  [[nodiscard]] bool send_at_once();
  [[nodiscard]] task<void> send_next();
  [[nodiscard]] task<void> read();
  [[nodiscard]] bool fits(const command_wire::reply_head& head,
                          std::size_t bytes) const noexcept;
  void take_reply(const command_wire::reply_head& head, received_block block);
  void take_question(const command_wire::reply_head& head, received_block& block);
  void answer(const store_answer& what);
  /// Lets the worker go on behind a call, although it has failed it.
  void let_go_on(std::uint64_t call);
  void take_status(const command_wire::reply_head& head, received_block& block);
  void note_done(std::uint64_t done);
  [[nodiscard]] bool may_send_next() const noexcept;
  [[nodiscard]] bool may_send() const noexcept {
    return !urgent_.empty() || may_send_next();
  }

  session_core& core_;
  const int id_;
  std::uint64_t incarnation_ = 0;
  worker_state state_ = worker_state::starting;
  std::string loss_;
  std::string stuck_in_;
  std::uint64_t stuck_call_ = 0;
  failure why_lost_;
  world control_;
  /// Null unless it is a thread of this process.
  local_places* locals_ = nullptr;
  /// Null unless it is a worker of a node, which has no control world here.
  node_relay* relay_ = nullptr;
  bool is_relayed_ = false;
  std::optional<failure> relay_end_;
  event relay_news_;
  std::uint64_t told_ = 0;
  std::deque<outgoing> outbox_;
  std::set<std::uint64_t> held_behind_;
  std::deque<outgoing> urgent_;
  std::size_t answers_ = 0;  ///< of those
  std::deque<flight> flights_;
  std::uint64_t done_ = 0;
  std::size_t bytes_in_flight_ = 0;
  status said_;
  std::optional<time_point> asked_;
  bool is_leaving_ = false;
  bool is_writer_idle_ = false;
  event wake_;  ///< there may be something to send
  event decided_;
  event wanted_;
};

}  // namespace manyworlds::inline v0::detail
