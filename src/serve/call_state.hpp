// Call state: one call at its leader, from its admission until its stream is dropped.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "link/wire.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/serve/dispatcher.hpp"
#include "serve/call_wire.hpp"
#include "serve/reply_buffer.hpp"

namespace manyworlds::inline v0::detail {

class client_session;

/// One giving of a call to a worker. The session of none is null.
struct call_try {
  client_session* session = nullptr;
  std::uint32_t slot = 0;

  explicit operator bool() const noexcept { return session != nullptr; }
  bool operator==(const call_try&) const noexcept = default;
};

/// The state of one call. The task that awaits the call owns it, then its stream. The
/// queue and the workers' slots refer to it until it ends. Thread: the dispatcher's
/// reactor.
///
/// A call has one try, and more only while its workers are suspect. It is committed to
/// the first worker that is heard: the other tries are cancelled and their answers are
/// dropped, so that the call is answered once.
class call_state {
 public:
  call_state(std::shared_ptr<dispatch_core> core, pick_reference pick,
             std::uint64_t number) noexcept;
  call_state(const call_state&) = delete;
  call_state& operator=(const call_state&) = delete;
  ~call_state();

  /// Returns the place in the order of admission.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] pick_reference& pick() noexcept { return pick_; }
  [[nodiscard]] int tries() const noexcept { return tries_; }
  [[nodiscard]] time_point deadline() const noexcept { return due_; }
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }
  /// Returns whether it waits for a worker, perhaps for a second one.
  [[nodiscard]] bool is_queued() const noexcept { return is_queued_; }
  /// Returns whether its request is being sent, or will be, by the task that awaits the
  /// call.
  [[nodiscard]] bool is_sending() const noexcept { return is_sending_; }
  /// Returns whether a worker was heard: no other may be asked.
  [[nodiscard]] bool is_committed() const noexcept { return is_committed_; }
  [[nodiscard]] bool is_answered() const noexcept {
    return replies_.came() > 0 || is_over_;
  }
  /// Returns whether a worker has it, or may get it.
  [[nodiscard]] bool has_try() const noexcept {
    return !asked_.empty() || (is_sending_ && sending_ && !is_unwanted_);
  }
  /// Returns whether all workers that have it are suspect, and it is not committed.
  [[nodiscard]] bool is_held_up() const noexcept;
  [[nodiscard]] bool was_given_to(const client_session& session) const noexcept;
  /// Returns whether an answer to that try is the call's answer, or may be.
  [[nodiscard]] bool is_wanted(const call_try& t) const noexcept;
  /// Returns whether it is queued for a second worker, or will be when a sending has
  /// ended.
  [[nodiscard]] bool wants_another() const noexcept { return wants_another_; }

  // --- by the task that awaits the call
  void begin(executor& home, duration limit, std::stop_token token);
  /// Awaits the next change.
  [[nodiscard]] event_awaiter changed() noexcept { return changed_.wait(); }
  /// Returns where its request is to be sent.
  [[nodiscard]] call_try sending() const noexcept { return sending_; }
  /// Is set when its request shall not be sent any further.
  [[nodiscard]] event& withdrawn() noexcept { return withdrawn_; }
  /// Ends the sending. Returns the try if its slot is to be cancelled: the request was
  /// not sent whole, or is no longer wanted. Precondition: `is_sending()`.
  [[nodiscard]] call_try end_sending(bool was_sent) noexcept;
  /// Throws the failure if it is over and there is nothing to read.
  void check() const;

  // --- by the dispatcher
  void set_queued() noexcept;
  void set_not_queued() noexcept { is_queued_ = wants_another_ = false; }
  void set_sending(client_session& session, std::uint32_t slot) noexcept;
  /// Queues it for another worker beside those that have it, or in place of the one to
  /// which its request is just being sent. Runs no user code.
  void want_another();
  /// Commits the call to that try: its worker was heard.
  void commit_to(call_try from) noexcept;
  /// Forgets a try that its worker has ended, but that is not wanted.
  void drop(call_try t) noexcept;
  /// Ends the call with its worker's answer.
  void end(call_try from, failure f) noexcept;
  /// Takes the try back: its worker drains, and has not begun the call.
  void give_back(call_try from) noexcept;
  /// Takes the try back before its request was sent.
  void take_back_try() noexcept {
    MW_ASSERT(tries_ > 0, "a try is taken back once");
    --tries_;
  }
  /// Forgets the tries at a worker that is gone.
  void lose(const client_session& session, const failure& why) noexcept;
  /// Asks another worker, or ends, since no worker has it. `why` is the cause, or none.
  void go_on_without(const failure& why) noexcept;
  /// Ends the call otherwise. Its workers, if it has any, are told to stop.
  void give_up(failure f) noexcept;
  void give_up(std::exception_ptr error) noexcept;
  void push(bytes reply);
  /// Counts replies of that cost that the worker gave up: they will not come.
  void skip(std::uint64_t cost) noexcept;
  /// Completes an error: with the call, and the worker that it was given to last.
  [[nodiscard]] failure describe(failure f) const;

  /// Time since when there is no worker.
  time_point alone_since = time_point::max();

  // --- by the stream's reader
  [[nodiscard]] bool has_news() const noexcept { return !replies_.empty() || is_over_; }
  [[nodiscard]] std::optional<bytes> take_reply() noexcept;
  /// Returns how it ended, if it is over; empty if in order.
  [[nodiscard]] const failure& ending() const noexcept { return failure_; }
  [[nodiscard]] bool is_being_read() const noexcept { return reader_ != nullptr; }
  void read_by(next_reply_awaiter* reader) noexcept {
    MW_ASSERT((reader == nullptr) != (reader_ == nullptr),
              "a call has one reader at a time");
    reader_ = reader;
  }
  [[nodiscard]] const reply_buffer& replies() const noexcept { return replies_; }

 private:
  void limit_reached(cause why) noexcept;
  void finish(failure f) noexcept;
  void note_change() noexcept;
  void note_read() noexcept;
  void withdraw() noexcept;
  void cancel_asked() noexcept;

  const std::shared_ptr<dispatch_core> core_;
  pick_reference pick_;
  const std::uint64_t number_;
  member_deadline<&call_state::limit_reached> deadline_{*this};
  time_point due_ = time_point::max();
  event changed_;

  /// The try that is being sent. None if its worker was lost meanwhile, or has given
  /// the slot back or ended it already.
  call_try sending_;
  /// Tries that were sent: one, apart from those at workers that were suspect before.
  std::vector<call_try> asked_;
  event withdrawn_;
  bool is_queued_ = false;
  bool is_sending_ = false;
  bool is_unwanted_ = false;  ///< the request that is being sent
  bool is_committed_ = false;
  bool is_over_ = false;
  bool wants_another_ = false;
  bool was_asked_again_ = false;
  int tries_ = 0;
  /// World, epoch and process of the worker that it was given to last.
  failure worker_;
  failure failure_;
  std::exception_ptr error_;

  reply_buffer replies_;
  next_reply_awaiter* reader_ = nullptr;
};

}  // namespace manyworlds::inline v0::detail
