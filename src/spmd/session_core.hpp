// Session core: the controller of a session.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coro/event_hub.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "manyworlds/spmd/session.hpp"
#include "manyworlds/spmd/session_event.hpp"
#include "manyworlds/world/runtime.hpp"
#include "spmd/call_record.hpp"
#include "spmd/call_watch.hpp"
#include "spmd/mesh_book.hpp"
#include "spmd/plugin_book.hpp"
#include "spmd/register_book.hpp"
#include "spmd/worker_link.hpp"
#include "spmd/worker_replacer.hpp"
#include "spmd/worker_source.hpp"

namespace manyworlds::inline v0::detail {

/// A process that has died is reaped within a millisecond of its worlds' breaking: the
/// error of its calls waits for what ended it, on a busy machine this long.
inline constexpr duration patience_for_reason = std::chrono::milliseconds(100);

/// Issues calls, settles those that fail, gives out registers and meshes, and notes which
/// workers are lost.
///
/// A call that fails is *settled* when no worker goes on with it. Those that hold behind
/// it then go on. The world of its mesh stays if all have begun equally many collectives
/// in the call and have received all that was sent; else its members form the next epoch.
///
/// A task of the runtime holds it until it has closed. Thread: the reactor.
class session_core final : public std::enable_shared_from_this<session_core> {
 public:
  session_core(runtime& rt, std::unique_ptr<worker_source> source, int workers,
               const session_options& limits);
  session_core(const session_core&) = delete;
  session_core& operator=(const session_core&) = delete;
  ~session_core();

  // --- its life
  /// Starts all workers. Errors: world_error (`not_joined`).
  [[nodiscard]] static task<void> begin(std::shared_ptr<session_core> self);
  [[nodiscard]] static task<void> close(std::shared_ptr<session_core> self);
  /// Says which workers are not there, and why.
  [[nodiscard]] std::string absent_workers() const;
  /// Ends without waiting: the handle is dropped.
  void abandon() noexcept;
  [[nodiscard]] executor& home() noexcept;
  [[nodiscard]] runtime& of() noexcept { return runtime_; }
  [[nodiscard]] const session_options& limits() const noexcept { return limits_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] worker_source& source() noexcept { return *source_; }
  [[nodiscard]] worker_replacer& replacer() noexcept { return replacer_; }
  [[nodiscard]] event_hub<session_event>& events() noexcept { return events_; }
  [[nodiscard]] register_book& registers() noexcept { return registers_; }
  [[nodiscard]] plugin_book& plugins() noexcept { return plugins_; }
  [[nodiscard]] mesh_book& meshes() noexcept { return meshes_; }
  [[nodiscard]] worker_link& link_of(int worker) const noexcept;
  [[nodiscard]] std::size_t open_calls() const noexcept { return open_.size(); }
  /// Returns whether it takes no more calls.
  [[nodiscard]] bool is_ending() const noexcept { return is_over_ || closing_.is_set(); }
  /// Starts a task that ends with the session. Precondition: it has begun.
  void spawn(task<void> child);
  /// Tells those that listen. Errors: none; without memory they miss it.
  void tell(const session_event& e) noexcept;
  /// Wakes the workers that sleep.
  void alert();
  [[nodiscard]] std::vector<session_worker> describe() const;
  /// Throws std::invalid_argument unless they are workers of it, each once.
  void check_workers(std::span<const int> workers) const;
  [[nodiscard]] std::vector<int> all_workers() const;

  // --- calls, by their awaiters
  /// Issues a call. Errors: call_error, and nothing was issued.
  [[nodiscard]] std::shared_ptr<call_record> issue(remote_request& request);
  /// Ends a call for its awaiter's sake.
  void give_up(call_record& call, cause why) noexcept;
  /// Resumes its awaiter, if it is answered.
  void examine(call_record& call) noexcept;
  /// Returns whether it is answered; its awaiter then goes on.
  [[nodiscard]] bool take_answer(call_record& call) noexcept;
  [[nodiscard]] std::exception_ptr error_of(const call_record& call) const;
  /// Notes that a call's error is told.
  void note_told(const call_record& call) noexcept { untold_.erase(call.id); }
  /// Takes an error that was not told: of the call that should have filled a register, or
  /// the earliest. Null if there is none.
  [[nodiscard]] std::exception_ptr take_untold(register_id which) noexcept;

  // --- registers
  /// Is told that drefs were dropped. Gives a share of this that could not be handed to
  /// the reactor. Thread: any. Precondition: it is not destroyed.
  [[nodiscard]] std::shared_ptr<void> note_dropped() noexcept;
  /// Returns the workers that a register is for. Errors: std::invalid_argument if it was
  /// dropped.
  [[nodiscard]] std::vector<int> workers_of(register_id which) const;
  /// Keeps what a worker of this process showed in that call, and returns it. Errors:
  /// call_error for null, and if its dref was dropped meanwhile.
  [[nodiscard]] void* keep_local(const call_record& call, std::shared_ptr<void> value);

  // --- what its links tell
  void note_freed(const worker_link& link, std::uint64_t call) noexcept;
  /// Returns the open call of that number, or null.
  [[nodiscard]] std::shared_ptr<call_record> find(std::uint64_t call) const noexcept;
  /// An incarnation is there, and has no command yet.
  void joined(worker_link& link);
  // --- what its calls tell
  void waited_for_loss(call_record& call) noexcept;
  void end_awaiting_loss(call_record& call) noexcept;
  void note_stuck(call_record& call) noexcept;
  void part_ended(const std::shared_ptr<call_record>& call);
  void part_failed(const std::shared_ptr<call_record>& call, worker_text text);

 private:
  [[nodiscard]] static task<void> hold(std::shared_ptr<session_core> self);
  [[nodiscard]] task<void> run();
  [[nodiscard]] task<void> live(worker_link& link);
  [[nodiscard]] task<std::string> told_by(const worker_link& link, std::string how);
  [[nodiscard]] task<void> end_workers();
  [[nodiscard]] task<void> watch_silence();

  /// Throws world_error (`invalid_argument`) elsewhere.
  void check_reactor() const;
  void check(const remote_request& request, const call_record& call) const;
  void check_registers(const remote_request& request, const call_record& call) const;
  [[noreturn]] void refuse(const call_record& call, failure why) const;
  void name_result(const remote_request& request, call_record& call);
  void note_makers(call_record& call) const;
  [[nodiscard]] std::uint32_t mesh_of(const std::vector<int>& workers);
  void release_dropped();
  void drop_noted() noexcept;
  void release_late() noexcept;

  void fail(const std::shared_ptr<call_record>& call, failure why);
  void await_loss(const std::shared_ptr<call_record>& call);
  [[nodiscard]] failure loss_of(const worker_link& link) const;
  void end_parts(call_record& call);
  void settle(const std::shared_ptr<call_record>& call);
  [[nodiscard]] std::exception_ptr why_never_made(register_id which) const;
  [[nodiscard]] static bool must_form_again(const call_record& call) noexcept;
  void lose(worker_link& link, const failure& why, const std::string& how);
  void end(cause why, const std::string& text) noexcept;
  void tell_of_failure(const call_record& call) noexcept;
  void keep_untold(const std::shared_ptr<call_record>& call);
  void tell_untold() noexcept;
  void let_others_go(call_record& call);
  void fail_cut_calls(std::uint32_t mesh, std::uint64_t behind, const failure& why);

  runtime& runtime_;
  std::unique_ptr<worker_source> source_;
  const session_options limits_;
  std::string name_;
  std::vector<std::unique_ptr<worker_link>> links_;
  std::map<std::uint64_t, std::shared_ptr<call_record>> open_;
  /// Calls that failed after their awaiters went on, until they are told.
  std::map<std::uint64_t, std::shared_ptr<call_record>> untold_;
  /// Calls that failed since another worker is lost, as one of theirs says.
  std::vector<std::shared_ptr<call_record>> awaiting_loss_;
  register_book registers_;
  mesh_book meshes_;
  plugin_book plugins_;
  worker_replacer replacer_{*this};
  call_watch watch_{*this};
  event_hub<session_event> events_;
  std::uint64_t last_call_ = 0;
  scope* lives_ = nullptr;
  std::atomic<bool> is_drop_noted_{false};
  kept_member_work<&session_core::drop_noted> drop_note_{*this};
  member_timer<&session_core::release_late> late_release_{*this};
  bool has_begun_ = false;
  /// Whether all workers were there: what is lost from then on is replaced.
  bool has_started_ = false;
  bool is_over_ = false;
  event closing_;
  event dropped_;
  event over_;
};

/// Refuses what no session can be made of. Errors: std::invalid_argument.
void check_session(int workers, int per_host, const session_options& limits);

/// Starts a session with workers of a source. Errors: those of `session::start`.
[[nodiscard]] task<session> start_session(runtime& rt,
                                          std::unique_ptr<worker_source> source,
                                          int workers, session_options limits);

}  // namespace manyworlds::inline v0::detail
