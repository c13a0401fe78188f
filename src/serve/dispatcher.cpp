#include "manyworlds/serve/dispatcher.hpp"

#include <fmt/format.h>

#include "call_record.hpp"
#include "dispatch_core.hpp"
#include "worker_link.hpp"

namespace manyworlds::inline v0 {

namespace {

/// Keeps what a serving needs, also when the dispatcher is gone.
task<void> serve_world(std::shared_ptr<dispatch_core> core, world& w) {
  core->enter();
  if (core->is_closed()) co_return;
  worker_link link(*core, w, core->next_worker());
  co_await link.run();
}

task<void> drain_worker(std::shared_ptr<dispatch_core> core, worker_id worker) {
  core->enter();
  worker_link* const link = core->find(worker);
  if (!link) co_return;
  const std::shared_ptr<event> gone = link->gone();
  link->begin_drain();
  core->note_membership();
  co_await *gone;
}

/// Sends the request to the worker that it was given to, and settles what becomes of the
/// slot.
task<void> send_request(dispatch_core& core, call_record& call,
                        const call_request& request) {
  // The worker was lost between the giving and this turn.
  if (!call.has_slot()) {
    core.queue_again(call);
    co_return;
  }
  worker_link& link = call.link();
  // The handle may be gone before the send has ended.
  const std::shared_ptr<world_core> keeps = link.in().core();
  const std::size_t size = request.data.total_bytes();
  if (size > link.largest_request()) {
    const std::uint32_t slot = call.slot();
    call.end(failure(cause::invalid_argument,
                     fmt::format("a request of {} bytes; the worker takes {}", size,
                                 link.largest_request())));
    link.release(slot);
    co_return;
  }
  const duration left = call.deadline() - executor::current()->now();
  call_wire::order_head head{};
  head.kind = call_wire::order_kind::request;
  head.slot = call.slot();
  head.id = core.wire_id(call, link.in());
  head.time_left =
      call.deadline() == time_point::max()
          ? call_wire::no_deadline
          : static_cast<std::uint64_t>(std::max(left.count(), duration::rep{0}));
  head.window = core.options().window;
  head.largest_reply = core.options().largest_reply;
  head.earlier_tries = static_cast<std::uint32_t>(call.tries() - 1);
  auto send = link.in().send_message(head, gather_list(request.data.views()),
                                     to(link.peer()), lane());
  // The call's own watch does not reach a send.
  if (call.deadline() != time_point::max()) std::move(send).within(left);
  if (request.token.stop_possible()) std::move(send).stop(request.token);
  const result<void> sent = co_await outcome(std::move(send));

  if (!call.has_slot()) {
    // The worker was lost meanwhile, or has answered.
    if (call.at() == call_record::phase::sending) core.queue_again(call);
  } else if (sent) {
    if (call.at() == call_record::phase::over) {
      link.cancel(call.slot());
      call.let_go_of_slot();
    } else {
      call.set_asked();
    }
  } else {
    // Who is stopped may still take it: a withdrawal is answered within a second or not
    // at all. The slot is another's when the worker says so.
    const failure& why = sent.error();
    link.cancel(call.slot());
    call.let_go_of_slot();
    if (link.has_ended()) {
      core.note_membership();
      if (call.at() == call_record::phase::sending &&
          call.is_lost(why, core.options().tries))
        core.queue_again(call);
    } else {
      call.give_up(why);
    }
  }
}

}  // namespace

task<reply_stream> perform_call(std::shared_ptr<dispatch_core> core, call_request request,
                                pick_reference pick) {
  executor& home = core->enter();
  if (request.token.stop_requested()) {
    throw world_error(
        failure(cause::cancelled, "the stop token was triggered before it started"));
  }
  auto call = std::make_unique<call_record>(core, pick, core->next_number());
  call->begin(home, request.limit, request.token);
  core->admit(*call);
  while (!call->is_answered()) {
    if (call->at() == call_record::phase::sending) {
      co_await send_request(*core, *call, request);
    } else {
      co_await call->changed();
    }
  }
  call->check();
  co_return reply_stream(std::move(call));
}

std::optional<std::size_t> least_depth::operator()(
    std::span<const worker_status> workers) const noexcept {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const worker_status& w = workers[i];
    if (w.is_suspect || w.depth >= w.limit) continue;
    if (!best || std::pair(w.depth, w.calls) <
                     std::pair(workers[*best].depth, workers[*best].calls))
      best = i;
  }
  return best;
}

dispatcher::dispatcher(dispatch_options options)
    : core_(std::make_shared<dispatch_core>(options)) {}

dispatcher::~dispatcher() { core_->close(); }

task<void> dispatcher::serve(world& w) { return serve_world(core_, w); }

task<void> dispatcher::drain(worker_id worker) { return drain_worker(core_, worker); }

std::vector<worker_status> dispatcher::workers() const { return core_->workers(); }

std::size_t dispatcher::queued() const noexcept { return core_->queued(); }

}  // namespace manyworlds::inline v0
