// Call record: one call at the controller, from its issue until all workers have ended
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "manyworlds/coro/continuation.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/call_deadline.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "manyworlds/detail/remote_request.hpp"
#include "manyworlds/spmd/call_error.hpp"
#include "spmd/command_wire.hpp"
#include "spmd/message_block.hpp"

namespace manyworlds::inline v0::detail {

/// A call's way at one worker.
enum class part_state : std::uint8_t {
  queued,   ///< its command waits here, for room in the window
  begun,    ///< the worker has it, or is being sent it
  ended,    ///< well
  failed,   ///< by itself; the worker is held
  skipped,  ///< as it was told; the worker is held
  unsent,   ///< it was given up before
  lost      ///< with the worker
};

struct call_part {
  int worker = 0;
  std::uint64_t incarnation = 0;
  part_state state = part_state::queued;
  std::uint64_t collectives = 0;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  bool world_is_over = false;
  /// Whether the worker has said that it will not begin it: other calls are before it.
  bool waits_to_skip = false;
  /// Whether the worker has said what it did in its mesh.
  bool is_counted = false;
  /// Whether the caller's memory is being read, also beyond the worker's answer.
  bool is_being_read = false;

  /// Returns whether the worker will say no more of it.
  [[nodiscard]] bool is_over() const noexcept { return state >= part_state::ended; }
  /// Returns whether the worker waits to be told to go on.
  [[nodiscard]] bool is_held() const noexcept {
    return state == part_state::failed || state == part_state::skipped;
  }
};

/// What one worker gave.
struct call_answer {
  received_block block;
  std::size_t values = 0;
  std::size_t beside = 0;
};

/// The facts of one call, which the controller's parts change; see `session_core` for who
/// does what. Thread: the session's reactor.
class call_record {
 public:
  call_record(session_core& of, std::uint64_t number) noexcept
      : id(number), core(of), deadline(*this) {}
  call_record(const call_record&) = delete;
  call_record& operator=(const call_record&) = delete;
  ~call_record();

  [[nodiscard]] call_part* part_of(int worker) noexcept {
    for (call_part& each : parts) {
      if (each.worker == worker) return &each;
    }
    return nullptr;
  }
  [[nodiscard]] bool is_sync() const noexcept { return function.empty(); }
  [[nodiscard]] bool has_failed() const noexcept { return why.has_value(); }
  /// Returns whether it takes what that call is to make.
  [[nodiscard]] bool waits_for(std::uint64_t maker) const noexcept {
    for (const std::uint64_t each : makers) {
      if (each == maker) return true;
    }
    return false;
  }
  [[nodiscard]] bool is_over() const noexcept {
    for (const call_part& each : parts) {
      if (!each.is_over()) return false;
    }
    return true;
  }
  /// Returns whether a worker's outbox still reads the caller's memory.
  [[nodiscard]] bool is_being_sent() const noexcept {
    for (const call_part& each : parts) {
      if (each.state == part_state::queued || each.is_being_read) return true;
    }
    return false;
  }
  /// Returns whether the caller has what it waits for.
  [[nodiscard]] bool is_answered() const noexcept;

  const std::uint64_t id;
  session_core& core;
  std::string function;
  source_position where;
  command_wire::command_head head{};
  /// The name and the values, and what stands beside them in the caller's memory.
  std::vector<std::byte> front;
  value_writer values;
  std::vector<register_id> taken;
  /// The calls that are to make what it takes, if they were not settled at its issue.
  std::vector<std::uint64_t> makers;
  std::vector<call_part> parts;      ///< by rank
  std::vector<call_answer> answers;  ///< by rank, if values were asked for
  answer_wish wish = answer_wish::end;
  std::size_t from = 0;  ///< the rank of the value that was asked for
  register_handle result;
  /// The first cause, once it has failed, and what the workers said.
  std::optional<failure> why;
  std::vector<worker_text> told;
  /// Who awaits it; null before and after.
  continuation* waiter = nullptr;
  /// Whether its awaiter was resumed: what fails later is told elsewhere.
  bool is_told = false;
  bool was_cancelled = false;  ///< by its task
  bool is_settled = false;
  /// A worker is stuck in it: the others are not held by it until that one has ended it.
  bool lets_go = false;
  /// Whether it ends by itself at a time.
  bool has_limit = false;
  /// Whether the log has told that it lasts.
  bool is_named = false;
  /// Whether a worker said that another is lost: that one's end is told in its place, if
  /// it is noticed soon.
  bool awaits_loss = false;

 private:
  void given_up(cause why_given_up) noexcept;
  void waited_for_loss() noexcept;
  void grace_is_over() noexcept;

 public:
  member_deadline<&call_record::given_up> deadline;
  member_timer<&call_record::waited_for_loss> patience{*this};
  member_timer<&call_record::grace_is_over> grace{*this};
};

}  // namespace manyworlds::inline v0::detail
