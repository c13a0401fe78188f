#include "spmd/worker_loop.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "exception_text.hpp"
#include "io/cpu_binding.hpp"
#include "manyworlds/coro/offload.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/stop.hpp"
#include "manyworlds/coro/sync_wait.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/spmd/worker.hpp"
#include "spmd/local_places.hpp"
#include "spmd/mesh_name.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

using command_wire::command_head;
using command_wire::reply_head;

// What the controller knows it needs no answer about is told this often, of its window.
constexpr std::uint64_t progress_parts = 4;
// It is told this late at the latest.
constexpr duration longest_untold = std::chrono::milliseconds(20);
// How often a call that was ended, and still runs, is looked at.
constexpr duration patience_with_ended = std::chrono::milliseconds(1);
constexpr std::string_view text_of_cut =
    "it has ended in a world of its mesh that is over, in which others had not";

// --- commands ----------------------------------------------------------------------

/// The call that is being carried out.
struct worker_loop::running_call {
  std::uint64_t id = 0;
  mesh_seat* mesh = nullptr;
  std::stop_source stop;
  time_point since{};
  /// Until it has one, or is told that there is none.
  bool awaits_world = false;
  bool began_in_world = false;
  /// How far its world was when that was ended for the next one, and what the call had
  /// sent with it.
  std::optional<mesh_position> cut_at;
};

/// How a call has ended here.
struct worker_loop::outcome {
  reply_kind how = reply_kind::ended;
  enum cause why = cause::none;
  std::string text;
  mesh_position moved;
  bool world_is_over = false;
  /// Has the value that is told, of what `kept` keeps.
  std::optional<call_frame> frame;
  held_value kept;
};

/// Returns the CPU that this thread is bound to; -1 if there are several.
static int own_cpu() noexcept {
  const auto only = cpu_binding::of_thread(::gettid()).only_cpu();
  return only ? static_cast<int>(*only) : -1;
}

worker_loop::worker_loop(runtime& rt, store& meeting, const function_table& functions,
                         worker_seat seat, local_places* locals)
    : runtime_(rt),
      functions_(functions),
      seat_(std::move(seat)),
      locals_(locals),
      device_(worker_device::open(seat_)),
      cpu_(own_cpu()),
      desk_(std::make_shared<store_desk>(rt.home())),
      meshes_(rt, desk_, seat_, device_ ? device_->number() : memory_place::host),
      control_(rt, meeting,
               {.name = control_name(seat_.session, seat_.id, seat_.incarnation),
                .rank = 1,
                .size = 2,
                .form = seat_.limits.start,
                .suspect_after = seat_.limits.suspect_after,
                .broken_after = seat_.limits.lost_after}) {}

worker_loop::~worker_loop() = default;

task<void> worker_loop::run() {
  co_await control_;
  const struct closing {
    store_desk& of;
    ~closing() { of.close(); }
  } at_last{*desk_};
  // A call that is cut by the end of the controller is cancelled, and what it began
  // beside later calls too.
  const auto body = [this](scope& s) -> task<void> {
    beside_ = &s;
    co_await when_any(until_gone(read()), obey(), until_gone(send_questions()),
                      until_gone(tell_late()));
    s.cancel();
  };
  co_await scope::run(body);
  if (control_.state() == world_state::up) co_await control_.leave();
}

task<void> worker_loop::until_gone(task<void> what) {
  try {
    co_await std::move(what);
  } catch (...) {
    if (gone_) gone_();
    throw;
  }
}

task<void> worker_loop::read() {
  for (;;) {
    const auto told =
        co_await control_.recv_message<head_and_block<command_head>>(from{0}, lane(0));
    if (!command::fits(told.head.head, block_bytes(told.head, told.info)))
      throw value_error("the lengths of a command contradict each other");
    command c{told.head.head, block_of(told.head, told.info)};
    if (told.info.has_payload) co_await control_.recv(c.block.view(), from{0}, lane(0));
    if (c.head.kind == command_kind::end) {
      co_await end_call(c.head.call);
    } else if (c.head.kind == command_kind::resume) {
      resume(c);
      co_await tell_cut_calls();
    } else if (c.head.kind == command_kind::alert) {
      access::core(runtime_).user().stay_awake(seat_.limits.awake);
    } else if (c.head.kind == command_kind::ask) {
      co_await tell_status();
    } else if (c.head.kind == command_kind::answer) {
      desk_->take(c);
    } else {
      waiting_.push_back(std::move(c));
      arrived_.set();
    }
  }
}

task<void> worker_loop::send_questions() {
  for (;;) {
    co_await desk_->until_asked();
    const store_desk::outgoing next = desk_->take_next();
    const sent_block block(next.values.written());
    reply_head head{};
    head.call = next.number;
    head.done = told_;
    head.kind = reply_kind::question;
    head.values_bytes = static_cast<std::uint32_t>(block.size());
    co_await send_with_block(control_, head, block, to{0});
  }
}

/// What waits is cancelled. A collective that was entered cannot be taken back: its world
/// breaks, and forms anew when all have ended the call.
task<void> worker_loop::end_call(std::uint64_t call) {
  if (running_ != nullptr && running_->id == call) {
    running_->stop.request_stop();
    if (!break_collective_of(call)) beside_->spawn(break_later_collective_of(call));
    co_return;
  }
  if (call > last_begun_) {
    unwanted_.insert(call);
    co_await tell_progress(call);
    co_return;
  }
  // One that failed here was told, and is not among these.
  const auto over = std::ranges::find(latest_, call, &done_call::id);
  if (over != latest_.end()) co_await tell_done(*over);
}

/// Returns whether nothing of the call is left to be broken.
bool worker_loop::break_collective_of(std::uint64_t call) {
  if (running_ == nullptr || running_->id != call) return true;
  mesh_seat* const mesh = running_->mesh;
  if (mesh == nullptr || !mesh->is_in_collective()) return false;
  mesh->world.fail("call " + std::to_string(call) + " was ended");
  return true;
}

/// What it waited for may have been past cancelling, and a collective the next that it
/// does.
task<void> worker_loop::break_later_collective_of(std::uint64_t call) {
  while (!break_collective_of(call)) co_await sleep_for(patience_with_ended);
}

void worker_loop::resume(const command& c) {
  if (c.head.has(command_flag::forms_again)) {
    mesh_seat& mesh = meshes_.want(c.head.mesh, c.head.types);
    // One that has gone on waits for members that wait for this world's next epoch.
    if (running_ != nullptr && running_->mesh == &mesh && running_->id > c.head.call) {
      running_->cut_at = position_of(&mesh);
      mesh.world.fail("call " + std::to_string(c.head.call) +
                      " had ended in the middle of what its workers do together");
    }
    note_cut_calls(c.head.mesh, c.head.call);
    form_meshes();
  }
  const bool was_cut = cut_.erase(c.head.call) != 0;
  if (held_by_ != c.head.call && !was_cut) return;
  if (held_by_ == c.head.call) held_by_ = 0;
  resumed_.set();
}

/// What this worker has ended in the last world of a mesh, others may begin in the next
/// one. There its messages do not come, and that of a later call would (S-d). So such a
/// call fails, and nothing later is begun here until it is settled. Only this worker
/// knows all of them: ends are told in batches.
void worker_loop::note_cut_calls(std::uint32_t mesh, std::uint64_t behind) {
  for (done_call& each : latest_) {
    if (each.id <= behind || each.mesh != mesh || each.is_cut) continue;
    if (each.moved == mesh_position()) continue;
    MW_ASSERT(each.id <= last_begun_ && each.id != held_by_,
              "what has ended here was begun, and did not fail");
    each.is_cut = true;
    cut_.insert(each.id);
    untold_cuts_.push_back(each);
  }
}

task<void> worker_loop::tell_cut_calls() {
  while (!untold_cuts_.empty()) {
    const done_call which = untold_cuts_.front();
    untold_cuts_.pop_front();
    co_await tell_done(which);
  }
}

task<void> worker_loop::obey() {
  for (;;) {
    while (waiting_.empty()) {
      arrived_.reset();
      co_await arrived_;
    }
    command c = std::move(waiting_.front());
    waiting_.pop_front();
    if (c.head.kind == command_kind::close) {
      // What was not awaited has ended well, too; a word that is on its way ends here.
      co_await tell_progress();
      co_await meshes_.leave();
      co_return;
    }
    while (!cut_.empty()) {
      resumed_.reset();
      co_await resumed_;
    }
    if (locals_ != nullptr) locals_->take_over();
    co_await carry_out(c);
    form_meshes();
  }
}

task<void> worker_loop::carry_out(command& c) {
  switch (c.head.kind) {
    case command_kind::call:
    case command_kind::sync:
      co_await execute(c);
      break;
    case command_kind::mesh:
      add_mesh(c);
      break;
    default:
      break;
  }
  release(c);
  ++done_;
  bytes_done_ += c.block.size();
  // `execute` may have told of the call before it was counted.
  const bool is_due =
      done_ - told_ >= std::max<std::uint64_t>(1, seat_.limits.window / progress_parts) ||
      bytes_done_ >= seat_.limits.window_bytes / progress_parts;
  if (is_due && done_ > told_) co_await tell_progress();
  if (done_ == told_) bytes_done_ = 0;
  if (done_ > told_) untold_.set();
}

void worker_loop::add_mesh(command& c) {
  value_reader in = c.values();
  meshes_.describe(c.head.mesh, c.head.types, argument<std::vector<int>>::read(in));
}

void worker_loop::form_meshes() {
  meshes_.form(*beside_, running_ != nullptr ? running_->mesh : nullptr);
}

void worker_loop::release(command& c) noexcept {
  c.each_release([this](register_id which) { registers_.release(which); });
}

// --- calls ----------------------------------------------------------------------

task<void> worker_loop::execute(command& c) {
  outcome out;
  bool was_ended = false;
  const std::uint64_t id = c.head.call;
  last_begun_ = id;
  if (unwanted_.erase(id) != 0) {
    out.how = reply_kind::skipped;
  } else if (c.head.kind == command_kind::call) {
    running_call call;
    call.id = id;
    call.since = runtime_.home().now();
    running_ = &call;
    try {
      co_await run_function(c, call, out);
    } catch (const world_error& e) {
      out.how = reply_kind::failed;
      out.why = e.cause();
      out.text = e.what();
    } catch (...) {
      out.how = reply_kind::failed;
      out.text = handled_exception_text();
    }
    running_ = nullptr;
    if (call.cut_at && out.how == reply_kind::ended && out.moved != mesh_position()) {
      out.how = reply_kind::failed;
      out.why = cause::broken_by_user;
      out.text = text_of_cut;
    }
    was_ended = call.stop.stop_requested();
    if (out.how == reply_kind::failed && was_ended) out.how = reply_kind::skipped;
    out.world_is_over = call.mesh != nullptr && call.mesh->world &&
                        call.mesh->world.state() != world_state::up;
  }
  if (out.how != reply_kind::ended && c.head.has(command_flag::fills))
    registers_.fail(c.head.result, id, std::string(c.name()));
  const bool wants_answer = c.head.has(command_flag::wants_end) ||
                            c.head.has(command_flag::wants_value) ||
                            c.head.kind == command_kind::sync || was_ended;
  if (out.how == reply_kind::ended) {
    latest_.push_back({id, c.head.mesh, out.moved, false});
    // More than the controller can have on their way.
    if (latest_.size() > 2 * seat_.limits.window) latest_.pop_front();
    if (wants_answer) co_await tell(c, out);
    co_return;
  }
  // Before it is told: the answer to it may come at once.
  held_by_ = id;
  co_await tell(c, out);
  while (held_by_ != 0) {
    resumed_.reset();
    co_await resumed_;
  }
}

const function_table::entry& worker_loop::find_function(command& c) const {
  const std::string_view name = c.name();
  const function_table::entry* found = functions_.find(name);
  if (found == nullptr)
    throw value_error("it has no function \"" + std::string(name) + "\"");
  if (!c.is_of_any_types() && access::core(*found).types().number() != c.head.types) {
    throw value_error("its function \"" + std::string(name) +
                      "\" has other types, or is of another build");
  }
  if (c.is_of_any_types() && c.head.has(command_flag::is_alone) && !found->is_alone()) {
    throw value_error(
        "its function \"" + std::string(name) +
        "\" is not mw::alone, as the call says: its workers do it together");
  }
  return *found;
}

/// Returns what a function sees that does without its mesh.
worker_facts worker_loop::facts_of(running_call& call) noexcept {
  worker_facts facts{.id = seat_.id,
                     .incarnation = seat_.incarnation,
                     .call = call.id,
                     .rank = static_cast<rank_t>(seat_.id),
                     .size = static_cast<rank_t>(seat_.workers),
                     .runtime = &runtime_,
                     .beside = beside_,
                     .plugins = &functions_,
                     .device = device_,
                     .cpu = cpu_,
                     .stop = call.stop.get_token(),
                     .locals = locals_};
  if (device_) {
    facts.place.device = device_->number();
    facts.stream = device_->stream();
  }
  return facts;
}

/// In a world that broke meanwhile it is not known: it counts as something, so that what
/// the call has sent there is not forgotten (S-d).
mesh_position worker_loop::moved_since(const mesh_position& before,
                                       const running_call& call) {
  constexpr mesh_position something{1, 1, 1};
  const bool had_world = call.mesh != nullptr && call.began_in_world;
  if (!had_world) return {};
  if (!call.cut_at && !call.mesh->is_up()) return something;
  const mesh_position after = call.cut_at ? *call.cut_at : position_of(call.mesh);
  return {after.collectives - before.collectives, after.sent - before.sent,
          after.received - before.received};
}

task<void> worker_loop::run_function(command& c, running_call& call, outcome& out) {
  const function_table::entry& found = find_function(c);
  const remote_callable& callable = access::core(found);
  worker_facts facts = facts_of(call);
  // What the controller does not know of the function is as it is here.
  const bool is_alone = c.is_of_any_types() && found.is_alone();
  if (mesh_seat* const at = is_alone ? nullptr : meshes_.find(c.head.mesh)) {
    facts.rank = at->rank;
    facts.size = static_cast<rank_t>(at->ids.size());
    call.awaits_world = true;
    while (at->is_forming) co_await stop_on(at->settled.wait(), call.stop.get_token());
    // Before it is refused: without a world the mesh is formed again.
    call.mesh = at;
    if (!at->trouble.empty()) {
      const std::string text = "its mesh has no world: " + at->trouble;
      // A member that is lost while it forms is told of as one that is lost later.
      if (at->why != cause::none) throw world_error(failure(at->why, text));
      throw value_error(text);
    }
    facts.world = &at->world;
  }
  const mesh_position before = position_of(call.mesh);
  call.began_in_world = call.mesh != nullptr && call.mesh->is_up();
  worker me = access::make<worker>(facts);
  out.frame.emplace(c.values(), registers_, c.head.has(command_flag::wants_value));
  std::exception_ptr error;
  try {
    if (found.blocks()) {
      if (!compute_)
        compute_ = std::make_unique<worker_thread>("mw-" + std::to_string(seat_.id));
      co_await offload(*compute_, [&] { sync_wait(callable.run(me, *out.frame)); });
    } else {
      co_await stop_on(callable.run(me, *out.frame), call.stop.get_token());
    }
    if (out.frame->has_to_fetch())
      co_await stop_on(out.frame->fetch_answer(), call.stop.get_token());
  } catch (const value_error& e) {
    error =
        out.frame->has_begun()
            ? std::current_exception()
            : std::make_exception_ptr(value_error(
                  "argument " + std::to_string(out.frame->taken()) + ": " + e.what()));
  } catch (...) {
    error = std::current_exception();
  }
  if (!error && out.frame->answer().written().size() > command_wire::most_value_bytes) {
    error = std::make_exception_ptr(value_error(
        "the values that it gives have more than 16 MiB: larger ones are tensors"));
  }
  out.moved = moved_since(before, call);
  if (error) std::rethrow_exception(error);
  // Its value may refer to what is kept: the register shares it with the answer.
  if (c.head.has(command_flag::fills)) {
    held_value held = out.frame->take_result();
    if (held.type) {
      registers_.fill(c.head.result, held);
    } else {
      registers_.fill_nothing(c.head.result, call.id, std::string(c.name()));
    }
    out.kept = std::move(held);
  }
}

// --- replies ----------------------------------------------------------------------

task<void> worker_loop::tell(const command& c, outcome& out) {
  if (locals_ != nullptr) locals_->hand_over();
  reply_head head{};
  head.call = c.head.call;
  head.done = told_ = done_ + 1;
  head.kind = out.how;
  head.why = static_cast<std::uint8_t>(out.why);
  head.collectives = out.moved.collectives;
  head.sent = out.moved.sent;
  head.received = out.moved.received;
  head.world_is_over = out.world_is_over ? 1 : 0;
  std::span<const std::byte> front;
  std::span<const const_buffer_view> beside;
  if (out.how == reply_kind::failed) {
    out.text.resize(std::min(out.text.size(), command_wire::longest_text));
    front = std::as_bytes(std::span(out.text));
  } else if (out.how == reply_kind::ended && out.frame &&
             c.head.has(command_flag::wants_value)) {
    front = out.frame->answer().written();
    beside = out.frame->answer().beside();
  }
  const sent_block block(front, beside);
  head.values_bytes = static_cast<std::uint32_t>(front.size());
  head.beside_bytes = block.beside_bytes();
  co_await send_with_block(control_, head, block, to{0});
}

task<void> worker_loop::tell_done(done_call which) {
  if (locals_ != nullptr) locals_->hand_over();
  reply_head head{};
  head.call = which.id;
  // An answer that is being sent counts its call already.
  head.done = told_ = std::max(told_, done_);
  head.kind = which.is_cut ? reply_kind::failed : reply_kind::ended;
  head.why =
      static_cast<std::uint8_t>(which.is_cut ? cause::broken_by_user : cause::none);
  head.collectives = which.moved.collectives;
  head.sent = which.moved.sent;
  head.received = which.moved.received;
  const std::string_view text = which.is_cut ? text_of_cut : std::string_view();
  const sent_block block(std::as_bytes(std::span(text)));
  head.values_bytes = static_cast<std::uint32_t>(block.size());
  co_await send_with_block(control_, head, block, to{0});
}

task<void> worker_loop::tell_progress(std::uint64_t will_skip) {
  if (locals_ != nullptr) locals_->hand_over();
  reply_head head{};
  head.call = will_skip;
  // An answer that is being sent counts its call already.
  head.done = told_ = std::max(told_, done_);
  head.kind = reply_kind::progress;
  co_await send_with_block(control_, head, sent_block(), to{0});
}

/// What has ended long ago would otherwise fail with a worker that is lost, and a
/// register that it had filled would not be made again.
task<void> worker_loop::tell_late() {
  for (;;) {
    while (done_ <= told_) {
      untold_.reset();
      co_await untold_;
    }
    co_await sleep_for(longest_untold);
    if (done_ > told_) co_await tell_progress();
  }
}

task<void> worker_loop::tell_status() {
  reply_head head{};
  duration in_call{0};
  std::string doing;
  if (running_ != nullptr) {
    head.call = running_->id;
    in_call = runtime_.home().now() - running_->since;
    if (running_->mesh != nullptr) {
      doing = running_->mesh->under_way();
    } else if (running_->awaits_world) {
      doing = "its mesh's world is being formed";
    }
  }
  doing.resize(std::min(doing.size(), command_wire::longest_doing));
  value_writer told;
  told.integer(in_call.count());
  told.text(doing);
  // An answer that is being sent counts its call already.
  head.done = told_ = std::max(told_, done_);
  head.kind = reply_kind::status;
  const sent_block block(told.written());
  head.values_bytes = static_cast<std::uint32_t>(block.size());
  co_await send_with_block(control_, head, block, to{0});
}

}  // namespace manyworlds::inline v0::detail
