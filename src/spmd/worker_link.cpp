#include "spmd/worker_link.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "exception_text.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "spmd/local_places.hpp"
#include "spmd/mesh_name.hpp"
#include "spmd/session_core.hpp"
#include "world/world_core.hpp"

namespace manyworlds::inline v0::detail {

using command_wire::command_flag;
using command_wire::command_head;
using command_wire::command_kind;
using command_wire::reply_head;
using command_wire::reply_kind;

// How long the end of a worker that was killed is waited for.
constexpr duration patience_with_force = std::chrono::seconds(1);
// How many answers about keys may wait for a worker to read them.
constexpr std::size_t most_answers = 64;
constexpr std::size_t answers_per_mesh = 16;

// --- what goes out ------------------------------------------------------------

void worker_link::push(command_head head, std::shared_ptr<call_record> call) {
  outbox_.push_back({head, std::move(call), {}, next_order()});
  if (!send_at_once()) wake();
}

void worker_link::push(command_head head, std::vector<std::byte> block) {
  outbox_.push_back({head, nullptr, std::move(block), next_order()});
  wake();
}

bool worker_link::take_back(const call_record& call) {
  const auto at = std::ranges::find_if(
      outbox_, [&](const outgoing& each) { return each.call.get() == &call; });
  MW_ASSERT(at != outbox_.end(), "a part that is queued stands in its worker's outbox");
  if (call.head.mesh == 0 || (flights_.empty() && at == outbox_.begin())) {
    outbox_.erase(at);
    return false;
  }
  // Its mesh may get its next world when all have ended the call: not before this one has
  // done what is to be done in the present world.
  command_head marker{};
  marker.kind = command_kind::sync;
  marker.call = call.id;
  marker.set(command_flag::wants_end);
  *at = {marker, nullptr, {}, at->order};
  wake();
  return true;
}

void worker_link::tell(command_head head, std::vector<std::byte> block) {
  // One alert is as good as many.
  if (head.kind == command_kind::alert && !urgent_.empty() &&
      urgent_.back().head.kind == command_kind::alert)
    return;
  urgent_.push_back({head, nullptr, std::move(block), next_order()});
  ++told_;
  wake();
}

void worker_link::close() {
  command_head head{};
  head.kind = command_kind::close;
  push(head, std::vector<std::byte>());
}

bool worker_link::may_send_next() const noexcept {
  if (outbox_.empty()) return false;
  const outgoing& next = outbox_.front();
  if (next.call && !held_behind_.empty() && next.call->id > *held_behind_.begin())
    return false;
  // What is larger than the window goes alone.
  return flights_.size() < core_.limits().window &&
         (flights_.empty() || bytes_in_flight_ < core_.limits().window_bytes);
}

task<void> worker_link::write() {
  for (;;) {
    while (!may_send()) {
      wake_.reset();
      is_writer_idle_ = true;
      co_await wake_;
      is_writer_idle_ = false;
    }
    if (!urgent_.empty()) {
      const outgoing next = take(true);
      const sent_block block = next.whole();
      co_await send_with_block(control_, next.head, block, to{1});
      continue;
    }
    co_await send_next();
  }
}

bool worker_link::outgoing::is_as(const outgoing& other) const noexcept {
  if (call || other.call) return call == other.call && head.kind == other.head.kind;
  return std::memcmp(&head, &other.head, sizeof head) == 0 && block == other.block;
}

worker_link::outgoing worker_link::take(bool urgent) {
  std::deque<outgoing>& all = urgent ? urgent_ : outbox_;
  outgoing next = std::move(all.front());
  all.pop_front();
  if (next.head.kind == command_kind::answer) --answers_;
  return next;
}

call_part* worker_link::note_sent(outgoing& next, const sent_block& block) {
  flights_.push_back({next.call, block.size()});
  bytes_in_flight_ += block.size();
  if (!next.call) return nullptr;
  call_part* const part = next.call->part_of(id_);
  MW_ASSERT(part != nullptr && part->state == part_state::queued,
            "a command that waits belongs to a part that waits");
  part->state = part_state::begun;
  next.head.beside_bytes = block.beside_bytes();
  return part;
}

being_read::~being_read() {
  part_.is_being_read = false;
  call_.core.examine(call_);
}

/// Sends what was queued now, if nothing is in front of it and it needs no wait, as most
/// commands do. The writer would take 0.3 us and a turn of the reactor for it.
bool worker_link::send_at_once() {
  if (!is_writer_idle_ || outbox_.size() != 1 || !urgent_.empty() || !may_send())
    return false;
  outgoing& next = outbox_.front();
  const sent_block block = next.whole();
  next.head.beside_bytes = block.beside_bytes();
  if (locals_ != nullptr) locals_->hand_over();
  auto sending = send_with_block(control_, next.head, block, to{1}).operator co_await();
  if (!sending.await_ready()) return false;
  sending.await_resume();
  static_cast<void>(note_sent(next, block));
  outbox_.pop_front();
  return true;
}

/// Takes it out of the outbox itself: a task that is cancelled before it has begun leaves
/// it there.
task<void> worker_link::send_next() {
  outgoing next = take(false);
  const sent_block block = next.whole();
  std::optional<being_read> reading;
  if (call_part* const part = note_sent(next, block)) reading.emplace(*next.call, *part);
  if (locals_ != nullptr) locals_->hand_over();
  co_await send_with_block(control_, next.head, block, to{1});
}

// --- what comes back ------------------------------------------------------------

task<void> worker_link::read() {
  for (;;) {
    const auto told =
        co_await control_.recv_message<head_and_block<reply_head>>(from{1}, lane(0));
    if (!fits(told.head.head, block_bytes(told.head, told.info))) {
      control_.fail("a reply that contradicts itself");
      continue;
    }
    received_block block = block_of(told.head, told.info);
    if (told.info.has_payload) co_await control_.recv(block.view(), from{1}, lane(0));
    take_reply(told.head.head, std::move(block));
  }
}

/// Before anything is allocated for it (law 11).
bool worker_link::fits(const reply_head& head, std::size_t bytes) const noexcept {
  return head.done >= done_ && head.done - done_ <= flights_.size() &&
         reply_fits(head, bytes);
}

void worker_link::take_reply(const reply_head& head, received_block block) {
  if (locals_ != nullptr) locals_->take_over();
  if (head.kind == reply_kind::status) return take_status(head, block);
  if (head.kind == reply_kind::question) return take_question(head, block);
  if (head.call == stuck_call_ && head.kind != reply_kind::progress && is_stuck()) {
    stuck_in_.clear();
    core_.note_freed(*this, head.call);
  }
  const std::shared_ptr<call_record> call = core_.find(head.call);
  call_part* const part = call ? call->part_of(id_) : nullptr;
  if (part != nullptr && part->state == part_state::queued) {
    fail("a reply to a call that was not sent");
    return;
  }
  if (part != nullptr && head.kind == reply_kind::progress) part->waits_to_skip = true;
  // It had ended, in a world that has a successor since, and what comes behind it is
  // held. Where all have ended it nothing was lost.
  if (head.kind == reply_kind::failed && call == nullptr) let_go_on(head.call);
  const bool is_own = part != nullptr && part->incarnation == incarnation_;
  const bool is_cut =
      is_own && part->state == part_state::ended && head.kind == reply_kind::failed;
  // One that was answered, as by its end here that crossed the controller's, is over.
  if (is_own && (!part->is_over() || is_cut) && head.kind != reply_kind::progress) {
    part->collectives = head.collectives;
    part->sent = head.sent;
    part->received = head.received;
    part->world_is_over = head.world_is_over != 0;
    part->is_counted = true;
    if (head.kind == reply_kind::failed) {
      part->state = part_state::failed;
      const std::span<const std::byte> said = block.bytes_at(0, head.values_bytes);
      worker_text text{id_,
                       incarnation_,
                       static_cast<enum cause>(head.why),
                       {reinterpret_cast<const char*>(said.data()), said.size()}};
      core_.part_failed(call, std::move(text));
      if (call->lets_go && !call->is_settled) let_go_on(head.call);
    } else {
      part->state =
          head.kind == reply_kind::ended ? part_state::ended : part_state::skipped;
      if (!call->answers.empty() && head.values_bytes > 0) {
        const auto rank = static_cast<std::size_t>(part - call->parts.data());
        call->answers[rank] = {std::move(block), head.values_bytes, head.beside_bytes};
      }
      core_.part_ended(call);
    }
  }
  note_done(head.done);
}

void worker_link::take_question(const reply_head& head, received_block& block) {
  try {
    for (const store_answer& each :
         core_.meshes().serve(id_, head.call, store_question::read(head, block)))
      core_.link_of(each.worker).answer(each);
  } catch (const value_error& e) {
    fail(std::string("a question that is none: ") + e.what());
  }
}

void worker_link::let_go_on(std::uint64_t call) {
  // Law 11: one that fails calls again and again, and does not read that it may go on.
  if (urgent_.size() > most_answers + 4 * core_.limits().window)
    return fail("it fails calls that are over, and does not read what it is told");
  command_head head{};
  head.kind = command_kind::resume;
  head.call = call;
  tell(head);
}

void worker_link::answer(const store_answer& what) {
  // More than it can wait for.
  if (answers_ >= most_answers + answers_per_mesh * core_.meshes().all().size())
    return fail("it asks, and does not read what it is told");
  value_writer values;
  argument<std::optional<std::string>>::write(values, what.value);
  const std::span<const std::byte> written = values.written();
  command_head head{};
  head.kind = command_kind::answer;
  head.call = what.question;
  head.values_bytes = static_cast<std::uint32_t>(written.size());
  tell(head, {written.begin(), written.end()});
  ++answers_;
}

void worker_link::take_status(const reply_head& head, received_block& block) {
  try {
    said_ = {worker_status::read(head, block), core_.home().now()};
  } catch (const value_error& e) {
    return fail(std::string("a status that is none: ") + e.what());
  }
  asked_.reset();
  note_done(head.done);
}

call_record* worker_link::at_call() const noexcept {
  for (const flight& each : flights_) {
    if (each.call) return each.call.get();
  }
  return nullptr;
}

void worker_link::ask() {
  if (asked_ || state_ != worker_state::ready) return;
  asked_ = core_.home().now();
  command_head head{};
  head.kind = command_kind::ask;
  tell(head);
}

void worker_link::note_done(std::uint64_t done) {
  while (done_ < done) {
    const flight ended = std::move(flights_.front());
    flights_.pop_front();
    bytes_in_flight_ -= ended.bytes;
    ++done_;
    if (!ended.call) continue;
    call_part& part = *ended.call->part_of(id_);
    if (part.is_over()) continue;
    part.state = part_state::ended;
    core_.part_ended(ended.call);
  }
  wake();
}

// --- its life ------------------------------------------------------------

task<void> worker_link::serve(std::uint64_t incarnation) {
  incarnation_ = incarnation;
  state_ = worker_state::starting;
  locals_ = core_.source().locals(id_);
  relay_ = core_.source().relay(id_);
  // Its agent may have joined it before it is known here to run.
  const node_relay::attachment served(relay_, *this);
  co_await core_.source().start(id_, incarnation);
  if (relay_ == nullptr) {
    control_ = world(core_.of(), core_.source().meeting(),
                     {.name = control_name(core_.name(), id_, incarnation),
                      .rank = 0,
                      .size = 2,
                      .form = core_.limits().start,
                      .suspect_after = core_.limits().suspect_after,
                      .broken_after = core_.limits().lost_after});
  }
  co_await join();
  state_ = worker_state::ready;
  // Before any other command: what it takes part in.
  core_.joined(*this);
  decided_.set();
  if (relay_ != nullptr) {
    co_await be_relayed();
  } else {
    co_await when_any(read(), write());
  }
}

/// Waits until its control world is up.
task<void> worker_link::meet() {
  if (relay_ == nullptr) {
    co_await control_;
    co_return;
  }
  while (!is_relayed_ && !relay_end_) {
    relay_news_.reset();
    co_await relay_news_;
  }
  if (relay_end_) throw world_error(*relay_end_);
}

/// Joins it, unless it ends before.
task<void> worker_link::join() {
  auto formed = [this]() -> task<bool> {
    co_await meet();
    co_return true;
  };
  auto ended = [this]() -> task<std::string> {
    std::string how = co_await core_.source().ended(id_);
    co_return how.empty() ? std::string("it has ended") : how;
  };
  const auto [joined, how] = co_await when_any(formed(), ended());
  if (!joined) {
    failure f(cause::not_joined, *how);
    f.world = control_name(core_.name(), id_, incarnation_);
    f.rank = 1;
    f.operation = operation_kind::form;
    throw world_error(std::move(f));
  }
}

/// Breaks its control world.
void worker_link::fail(const std::string& why) {
  if (relay_ == nullptr) return control_.fail(why);
  relay_->fail(*this, why);
  failure f(cause::broken_by_user, why);
  f.world = control_name(core_.name(), id_, incarnation_);
  end_relayed(std::move(f));
}

/// What has started it may be lost, as a node's agent is that stands still, and the
/// worker may live: its control world is ended then, by which it ends itself.
task<void> worker_link::end_by_force() {
  const std::uint64_t which = incarnation_;
  const auto is_there = [&] {
    return state_ == worker_state::ready && incarnation_ == which;
  };
  auto until_gone = [&]() -> task<void> {
    while (is_there()) {
      decided_.reset();
      co_await decided_;
    }
  };
  co_await core_.source().end(id_, duration::zero());
  try {
    co_await within(until_gone(), patience_with_force);
  } catch (const timed_out&) {
    if (is_there()) fail("it was to be ended, and what has started it is lost");
  }
  co_await until_gone();
}

void worker_link::note_stuck(const call_record& in) {
  stuck_call_ = in.id;
  stuck_in_ = "call " + std::to_string(in.id) + " of " + in.function;
  // Who waits for its end in order waits no longer.
  decided_.set();
}

void worker_link::lose(failure why, std::string how) {
  stuck_in_.clear();
  said_ = {};
  asked_.reset();
  is_leaving_ = false;
  state_ = worker_state::lost;
  why_lost_ = std::move(why);
  loss_ = std::move(how);
  control_ = world();
  is_writer_idle_ = false;
  is_relayed_ = false;
  relay_end_.reset();
  told_ = 0;
  outbox_.clear();
  held_behind_.clear();
  urgent_.clear();
  answers_ = 0;
  core_.meshes().forget(id_);
  flights_.clear();
  bytes_in_flight_ = 0;
  done_ = 0;
  decided_.set();
}

bool worker_link::is_meant_by(const world_event& e) const noexcept {
  // Its node may be silent when it is lost already.
  if (relay_ != nullptr)
    return state_ == worker_state::ready &&
           relay_->is_heard(e.world, e.kind == world_event_kind::suspect);
  return e.world == control_name(core_.name(), id_, incarnation_);
}

void worker_link::note_silence(bool is_suspect) noexcept {
  core_.tell(
      {.kind = is_suspect ? session_event_kind::suspect : session_event_kind::recovered,
       .worker = id_,
       .incarnation = incarnation_});
}

// --- by way of its node ------------------------------------------------------------

task<void> worker_link::be_relayed() {
  while (!relay_end_) {
    relay_news_.reset();
    co_await relay_news_;
  }
  throw world_error(*relay_end_);
}

void worker_link::end_relayed(failure why) noexcept {
  if (!relay_end_) relay_end_ = std::move(why);
  relay_news_.set();
}

/// Behind its end nothing counts.
void worker_link::take_word(const node_wire::word_of& head, received_block block) {
  if (relay_end_) return;
  if (head.kind == node_wire::word_kind::joined) {
    is_relayed_ = true;
    relay_news_.set();
  } else if (head.kind == node_wire::word_kind::over) {
    const std::span<const std::byte> said = block.bytes_at(0, block.size());
    failure f(static_cast<enum cause>(head.why),
              {reinterpret_cast<const char*>(said.data()), said.size()});
    f.world = control_name(core_.name(), id_, incarnation_);
    f.rank = 1;
    f.peer.pid = core_.source().pid(id_);
    f.noticed_after = duration(head.noticed_after);
    end_relayed(std::move(f));
  } else if (state_ != worker_state::ready || !fits(head.reply, block.size())) {
    fail("a reply that contradicts itself");
  } else {
    take_reply(head.reply, std::move(block));
  }
}

}  // namespace manyworlds::inline v0::detail
