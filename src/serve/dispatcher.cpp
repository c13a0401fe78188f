#include "manyworlds/serve/dispatcher.hpp"

#include <fmt/format.h>

#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "serve/call_state.hpp"
#include "serve/client_session.hpp"
#include "serve/dispatch_core.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

/// Serves a world. It keeps the core, so that the dispatcher may be destroyed
/// meanwhile.
task<void> serve_world(std::shared_ptr<dispatch_core> core, world& w) {
  core->enter();
  if (core->is_closed()) co_return;
  client_session session(*core, w, core->workers().next_id());
  auto heed_runtime = [&]() -> task<void> {
    co_await access::core(w).runtime().stopping().wait();
    core->begin_drain();
    event never;
    co_await never;
  };
  co_await when_any(session.run(), heed_runtime());
}

task<void> drain_worker(std::shared_ptr<dispatch_core> core, worker_id worker) {
  core->enter();
  client_session* const session = core->workers().find(worker);
  if (!session) co_return;
  const std::shared_ptr<event> gone = session->gone();
  session->begin_drain();
  core->note_membership();
  co_await *gone;
}

/// Sends a request until it is taken, or withdrawn because it is no longer wanted.
/// Returns nothing if it was withdrawn.
task<std::optional<result<void>>> send_wanted(client_session& session,
                                              const call_wire::order_head& head,
                                              const gather_list& data, event& withdrawn) {
  auto send = [&]() -> task<result<void>> {
    co_return co_await outcome(session.in().send_message(head, gather_list(data.views()),
                                                         to(session.peer()), lane()));
  };
  auto withdrawal = [&]() -> task<void> { co_await withdrawn; };
  // The send comes first: it begins in its order.
  auto ended = co_await when_any(send(), withdrawal());
  co_return std::move(std::get<0>(ended));
}

call_wire::order_head request_head(dispatch_core& core, const call_state& call,
                                   call_try to_whom) {
  MW_ASSERT(call.tries() > 0, "a request is sent within a try");
  const duration left = call.deadline() - executor::current()->now();
  call_wire::order_head head{};
  head.kind = call_wire::order_kind::request;
  head.slot = to_whom.slot;
  head.id = core.wire_id(call, to_whom.session->in());
  head.time_left =
      call.deadline() == time_point::max()
          ? call_wire::no_deadline
          : static_cast<std::uint64_t>(std::max(left.count(), duration::rep{0}));
  head.window = core.options().window;
  head.largest_reply = core.options().largest_reply;
  head.earlier_tries = static_cast<std::uint32_t>(call.tries() - 1);
  return head;
}

/// Sends the request to the worker that the call was given to, and decides what happens
/// to the slot.
task<void> send_request(dispatch_core& core, call_state& call,
                        const call_request& request) {
  MW_ASSERT(call.is_sending(), "a request is sent for a call that has a worker");
  const call_try given = call.sending();
  // The worker was lost since, or no longer takes calls.
  if (!given || call.withdrawn().is_set() || given.session->is_draining()) {
    if (const call_try unsent = call.end_sending(false)) {
      unsent.session->release(unsent.slot);
      call.take_back_try();
    }
    call.go_on_without(failure());
    co_return;
  }
  client_session& session = *given.session;
  // Keep the core: the handle may be gone before the send has ended.
  const std::shared_ptr<world_core> keeps = access::core_ptr(session.in());
  const std::size_t size = request.data.total_bytes();
  if (size > session.largest_request()) {
    (void)call.end_sending(false);
    if (call.has_try()) {
      // It was to be given to a second worker; the first may yet answer.
      call.go_on_without(failure());
    } else {
      call.give_up(
          failure(cause::invalid_argument,
                  fmt::format("a request of {} bytes is too large: the worker takes {}",
                              size, session.largest_request())));
    }
    session.release(given.slot);
    co_return;
  }
  const call_wire::order_head head = request_head(core, call, given);
  const auto sent = co_await send_wanted(session, head, request.data, call.withdrawn());
  const bool was_sent = sent && *sent;
  const call_try to_cancel = call.end_sending(was_sent);
  // A worker that is stopped may still take it: a withdrawal is answered within a
  // second or not at all. The slot is free when the worker says so.
  if (to_cancel) to_cancel.session->cancel(to_cancel.slot);
  if (was_sent || !sent || !to_cancel) {
    call.go_on_without(failure());
  } else if (to_cancel.session->has_ended()) {
    core.note_membership();
    call.go_on_without(sent->error());
  } else {
    call.give_up(sent->error());
  }
}

}  // namespace

task<reply_stream> detail::perform_call(std::shared_ptr<dispatch_core> core,
                                        call_request request, pick_reference pick) {
  executor& home = core->enter();
  auto call = std::make_unique<call_state>(core, pick, core->next_number());
  if (request.token.stop_requested()) {
    throw world_error(call->describe(
        failure(cause::cancelled, "the stop token was triggered before it started")));
  }
  call->begin(home, request.limit, request.token);
  core->admit(*call);
  // A sending ends before the request's memory does.
  while (call->is_sending() || !call->is_answered()) {
    if (call->is_sending()) {
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

std::vector<worker_status> dispatcher::workers() const {
  return core_->workers().statuses();
}

dispatch_counters dispatcher::counters() const noexcept { return core_->counters(); }

std::size_t dispatcher::queued() const noexcept { return core_->queued(); }

}  // namespace manyworlds::inline v0
