#include "serve/client_session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "serve/dispatch_core.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

using call_wire::answer_head;
using call_wire::answer_kind;
using call_wire::control_entry;

client_session::client_session(dispatch_core& core, world& w, worker_id id)
    : core_(core), peer_(w), id_(id) {
  core_.workers().add(*this);
}

client_session::~client_session() {
  core_.remove(*this);
  gone_->set();
}

task<void> client_session::run() {
  auto body = [this](scope& s) -> task<void> {
    s.spawn(read());
    s.spawn(write());
    co_await over_;
    s.cancel();
  };
  co_await scope::run(body);
}

worker_status client_session::status() const {
  worker_status s;
  s.id = id_;
  s.world = in().name();
  s.epoch = in().epoch();
  s.limit = slots_.size();
  s.depth = slots_.size() - free_.size();
  s.calls = calls_;
  s.load = load_;
  s.is_suspect = is_suspect();
  s.is_draining = is_draining();
  return s;
}

bool client_session::is_silent() const noexcept {
  const world_core& core = access::core(in());
  const duration limit =
      std::max(core.options().suspect_after / 2, 2 * core.runtime().options().heartbeat);
  return core.members().silence_of(peer()) >= limit;
}

failure client_session::describe_worker() const {
  return access::core(in()).describe_failure(cause::none, peer(), operation_kind::call,
                                             {});
}

failure client_session::end_cause() const {
  const world_core& core = access::core(in());
  if (failure f = core.first_failure()) return f;
  return core.describe_failure(cause::abandoned, in().rank(), operation_kind::none,
                               "the worker is no longer served");
}

// --- slots

void client_session::assign(call_state& c) noexcept {
  MW_ASSERT(has_room(), "calls are given only to a worker with room");
  const std::uint32_t number = free_.back();
  free_.pop_back();
  // A slot stands in `due_` once, also from its last call on.
  MW_ASSERT(!slots_[number].is_taken && !slots_[number].call, "a free slot has no call");
  const bool is_due = slots_[number].is_due;
  slots_[number] = slot();
  slots_[number].is_due = is_due;
  slots_[number].call = &c;
  slots_[number].is_taken = true;
  ++calls_;
  slots_[number].wire_id = core_.wire_id(c, in());
  c.set_sending(*this, number);
}

void client_session::release(std::uint32_t number) noexcept {
  set_free(number);
  core_.note_room();
}

void client_session::cancel(std::uint32_t number) noexcept {
  MW_ASSERT(number < slots_.size() && slots_[number].is_taken,
            "a cancelled slot has a call");
  MW_ASSERT(!slots_[number].is_cancelled, "a slot's call is cancelled once");
  slots_[number].call = nullptr;
  slots_[number].is_cancelled = true;
  set_due(number);
}

void client_session::note_read(std::uint32_t number) noexcept {
  MW_ASSERT(number < slots_.size() && slots_[number].call,
            "replies are read of a slot's call");
  const slot& s = slots_[number];
  MW_ASSERT(s.credited <= s.call->replies().cost_of_read(),
            "credit is given for what was read");
  // Half a window at a time: a credit costs as much as a reply.
  if (s.call->replies().cost_of_read() - s.credited >= core_.options().window / 2)
    set_due(number);
}

void client_session::set_free(std::uint32_t number) noexcept {
  MW_ASSERT(number < slots_.size() && slots_[number].is_taken, "a slot is freed once");
  MW_ASSERT(free_.size() < slots_.size(), "each slot stands in the free ones once");
  slots_[number].call = nullptr;
  slots_[number].is_taken = false;
  free_.push_back(number);
  if (is_draining_ && is_idle()) stop();
}

void client_session::begin_drain() noexcept {
  is_draining_ = true;
  if (is_idle()) stop();
}

call_state* client_session::take_any_call() noexcept {
  for (slot& s : slots_) {
    if (s.call) return std::exchange(s.call, nullptr);
  }
  return nullptr;
}

void client_session::give_up_calls(const failure& why) noexcept {
  for (const slot& s : slots_) {
    if (s.call) s.call->give_up(why);
  }
}

// --- what is told the worker

void client_session::set_due(std::uint32_t number) noexcept {
  MW_ASSERT(number < slots_.size(), "control is due for a slot that exists");
  if (std::exchange(slots_[number].is_due, true)) return;
  MW_ASSERT(due_.size() < slots_.size(), "each slot stands in those that are due once");
  due_.push_back(number);
  something_due_.set();
  something_due_.reset();
}

void client_session::take_due(std::vector<control_entry>& entries) {
  entries.clear();
  for (const std::uint32_t number : due_) {
    slot& s = slots_[number];
    MW_ASSERT(s.is_due, "a slot that stands in those that are due is marked");
    s.is_due = false;
    // Control that is due for a call that has ended must not reach the slot's next
    // call.
    if (!s.is_taken) continue;
    if (s.is_cancelled) {
      entries.push_back({call_wire::control_kind::cancel, number, s.wire_id});
    } else if (s.call) {
      MW_ASSERT(s.credited <= s.call->replies().cost_of_read(), "credit never goes back");
      s.credited = s.call->replies().cost_of_read();
      entries.push_back({call_wire::control_kind::credit, number, s.credited});
    }
  }
  due_.clear();
  if (std::exchange(is_no_more_due_, false))
    entries.push_back({call_wire::control_kind::no_more, 0, 0});
}

task<void> client_session::write() {
  std::vector<control_entry> entries;
  for (;;) {
    while (due_.empty() && !is_no_more_due_) co_await something_due_;
    take_due(entries);
    if (entries.empty()) continue;
    call_wire::order_head head{};
    head.kind = call_wire::order_kind::control;
    head.count = static_cast<std::uint32_t>(entries.size());
    const auto data = std::as_bytes(std::span(entries));
    // A failed send ends only this task: `read` still reads what the worker delivered
    // before it left, and then meets the end of the world.
    const result<void> sent =
        co_await outcome(in().send_message(head, data, to(peer()), lane()));
    if (!sent) co_return;
  }
}

// --- what the worker tells

task<void> client_session::read() {
  for (;;) {
    const message<answer_head> got = co_await peer_.head<answer_head>();
    const answer_head& head = got.head;
    const bool has_payload =
        head.kind == answer_kind::reply || head.kind == answer_kind::failed;
    if (!has_payload && got.info.bytes != 0)
      peer_.refuse("an answer with bytes behind it that its kind does not have");
    if (!is_ready() && head.kind != answer_kind::hello)
      peer_.refuse("an answer before the hello: does it run call_server::serve?");
    switch (head.kind) {
      case answer_kind::hello:
        take_hello(head);
        break;
      case answer_kind::load:
        if (std::exchange(load_, head.word) != head.word) core_.note_room();
        break;
      case answer_kind::reply:
        co_await take_reply(head, got.info.bytes);
        break;
      case answer_kind::done:
        take_done(head);
        break;
      case answer_kind::draining:
        take_draining();
        break;
      case answer_kind::given_back:
        take_given_back(head);
        break;
      case answer_kind::sent:
        take_sent(head);
        break;
      case answer_kind::failed:
        co_await take_end(head, got.info.bytes);
        break;
      default:
        peer_.refuse(
            fmt::format("an answer of kind {}", static_cast<unsigned>(head.kind)));
    }
  }
}

void client_session::take_hello(const answer_head& head) {
  if (is_ready()) peer_.refuse("a second hello");
  if (head.word != call_wire::hello_word)
    peer_.refuse("a hello of another protocol: both ends must be of one version");
  if (head.slot == 0 || head.slot > call_wire::most_slots)
    peer_.refuse(fmt::format("a worker with {} slots", head.slot));
  largest_request_ = head.size;
  const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(
      head.slot, std::max<std::size_t>(core_.options().in_flight_per_worker, 1)));
  slots_.resize(count);
  // Each slot stands in them once: nothing is allocated where nothing may throw.
  free_.reserve(count);
  due_.reserve(count);
  // The first slot is the first to be used.
  for (std::uint32_t number = count; number > 0; --number) free_.push_back(number - 1);
  core_.note_membership();
}

client_session::slot& client_session::taken_slot(const answer_head& head) {
  if (head.slot >= slots_.size() || !slots_[head.slot].is_taken)
    peer_.refuse(fmt::format("an answer for slot {}, which has no call", head.slot));
  return slots_[head.slot];
}

// An answer to a request that was not sent breaks the protocol. But the slot may belong
// to another call before all of the answer has come.
client_session::slot& client_session::taken_slot(const answer_head& head,
                                                 std::uint64_t wire_id) {
  slot& s = taken_slot(head);
  if (s.wire_id != wire_id)
    peer_.refuse(fmt::format("an answer for slot {}, to a call that is over", head.slot));
  return s;
}

task<void> client_session::take_reply(answer_head head, std::size_t size) {
  const slot& s = taken_slot(head);
  const std::uint64_t wire_id = s.wire_id;
  if (size > core_.options().largest_reply)
    peer_.refuse(fmt::format("a reply of {} bytes", size));
  // Replies of another worker count in another window.
  if (s.call && s.call->is_wanted({this, head.slot})) {
    const std::uint64_t unread =
        s.call->replies().cost_of_come() - s.call->replies().cost_of_read();
    if (call_wire::must_wait(unread, size + call_wire::reply_cost,
                             core_.options().window))
      peer_.refuse("more replies than the call's window has room for");
  }
  bytes reply(size);
  if (size > 0 && !co_await peer_.payload(reply)) co_return;
  // Its reader may have gone meanwhile, or another worker has answered.
  static_cast<void>(taken_slot(head, wire_id));
  call_state* const c = wanted_call(head.slot);
  if (!c) co_return;
  c->commit_to({this, head.slot});
  c->push(std::move(reply));
}

call_state* client_session::wanted_call(std::uint32_t number) noexcept {
  call_state* const c = slots_[number].call;
  if (c && c->is_wanted({this, number})) return c;
  core_.note_late_answer(in());
  return nullptr;
}

void client_session::take_done(const answer_head& head) {
  if (call_state* const c = taken_slot(head).call) {
    const call_try t{this, head.slot};
    c->is_wanted(t) ? c->end(t, failure()) : c->drop(t);
  }
  release(head.slot);
}

void client_session::take_given_back(const answer_head& head) {
  take_draining();
  if (call_state* const c = taken_slot(head).call) {
    const call_try t{this, head.slot};
    if (!c->is_wanted(t)) {
      c->drop(t);
    } else if (c->is_committed()) {
      peer_.refuse("the worker gives back a call that it has begun to answer");
    } else {
      // The slot is free before the call is offered to others.
      slots_[head.slot].call = nullptr;
      core_.note_given_back(in());
      c->give_back(t);
    }
  }
  release(head.slot);
}

// Requests that were given to it before cross this, and are given back.
void client_session::take_draining() {
  if (std::exchange(is_leaving_, true)) return;
  is_no_more_due_ = true;
  something_due_.set();
  something_due_.reset();
  core_.note_membership();
}

void client_session::take_sent(const answer_head& head) {
  call_state* const c = taken_slot(head).call;
  if (!c || !c->is_wanted({this, head.slot})) return;
  c->commit_to({this, head.slot});
  if (head.word < c->replies().cost_of_come())
    peer_.refuse("the worker says that it has sent less than has come");
  const std::uint64_t unread = head.word - c->replies().cost_of_read();
  const dispatch_options& options = core_.options();
  if (head.word > call_wire::largest_cost ||
      unread > call_wire::most_unread(options.largest_reply, options.window))
    peer_.refuse(
        "the worker says that it has sent more than the call's window has room for");
  c->skip(head.word - c->replies().cost_of_come());
}

task<void> client_session::take_end(answer_head head, std::size_t size) {
  const std::uint64_t wire_id = taken_slot(head).wire_id;
  if (size > call_wire::largest_text)
    peer_.refuse(fmt::format("an error's text of {} bytes", size));
  bytes text(size);
  if (size > 0 && !co_await peer_.payload(text)) text.clear();
  const bool is_late = head.why == cause::timed_out || head.why == cause::cancelled;
  if (!call_wire::is_handlers_own(head.why) && !is_late)
    peer_.refuse(fmt::format("an error of kind {}", static_cast<unsigned>(head.why)));
  if (call_state* const c = taken_slot(head, wire_id).call) {
    const call_try t{this, head.slot};
    if (c->is_wanted(t)) {
      c->end(t,
             access::core(in()).describe_failure(
                 head.why, peer(), operation_kind::call,
                 std::string(reinterpret_cast<const char*>(text.data()), text.size())));
    } else {
      c->drop(t);
    }
  }
  release(head.slot);
}

}  // namespace manyworlds::inline v0::detail
