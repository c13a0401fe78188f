#include "spmd/node_link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "exception_text.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/serve/keep.hpp"
#include "spmd/worker_link.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

using node_wire::order_head;
using node_wire::order_kind;
using node_wire::report_head;
using node_wire::report_kind;

// An agent gives up what does not end after 30 s.
constexpr duration patience_with_end = std::chrono::seconds(35);
// The pause behind an agent with which no world can be formed, as one of another version.
constexpr duration pause_after_stranger = std::chrono::seconds(1);

// --- its agents ------------------------------------------------------------

task<void> node_link::run(store& meeting, const session_options& limits, event& over) {
  // An agent that is there is left in order, which ends the other task.
  auto end = [&]() -> task<void> {
    co_await over;
    event never;
    if (joined_.is_set()) co_await never;
  };
  co_await when_any(meet_agents(meeting, limits, over), end());
}

task<void> node_link::meet_agents(store& meeting, const session_options& limits,
                                  event& over) {
  while (!over.is_set()) {
    try {
      co_await meeting.set(
          node_wire::limits_key,
          fmt::format("{} {}", limits.suspect_after.count(), limits.lost_after.count()));
      co_await keep(
          runtime_, meeting,
          {.name = node_wire::node_name(node_),
           .rank = 0,
           .size = 2,
           .suspect_after = limits.suspect_after,
           .broken_after = limits.lost_after},
          [&](world& w) { return serve(w, over); }, after_close::form_again);
    } catch (...) {
      trouble_ = fmt::format("cannot join: {}", handled_exception_text());
    }
    if (!over.is_set()) co_await sleep_for(pause_after_stranger);
  }
}

task<void> node_link::serve(world& w, event& over) {
  co_await greet(w);
  const struct ending {
    node_link& self;
    ~ending() { self.lose(); }
  } at_last{*this};
  joined_.set();
  why_lost_ = failure(cause::out_of_resources, {});
  auto end = [&]() -> task<void> { co_await over; };
  try {
    co_await when_any(read(w), outbox_.write(w, 1), relay_.serve(w), end());
  } catch (const world_error& e) {
    trouble_ = fmt::format("is lost: {}", e.failure().text());
    why_lost_ = e.failure();
    // The session goes on.
    if (why_lost_.cause == cause::closed) why_lost_.cause = cause::abandoned;
    // It ends in order, and no other agent is waited for.
    if (!over.is_set()) throw;
  } catch (const std::exception& e) {
    // There may be no memory for what it says.
    trouble_ = fmt::format("is lost: {}", e.what());
    throw;
  }
}

/// The agent says first which protocol it speaks.
task<void> node_link::greet(world& w) {
  for (;;) {
    const auto told = co_await receive_from_node<report_head>(w, 1);
    const bool is_hello = told.head.kind == report_kind::hello && told.text.empty();
    if (is_hello && std::cmp_equal(told.head.worker, node_wire::version)) co_return;
    trouble_ = fmt::format("speaks version {} of what agents are told, and not {}",
                           told.head.worker, node_wire::version);
    w.fail(fmt::format("node {} {}", node_, trouble_));
  }
}

task<void> node_link::read(world& w) {
  for (;;) {
    auto told = co_await receive_from_node<report_head>(w, 1);
    take_report(told.head, std::move(told.text));
  }
}

void node_link::take_report(const report_head& head, std::string text) {
  const std::shared_ptr<node_seat> seat = find(head.worker);
  // A late one is of an incarnation that was ended.
  if (!seat || seat->incarnation != head.incarnation) return;
  if (head.kind == report_kind::started) {
    // A negative one would be all processes for kill(2).
    seat->pid = std::max<std::int64_t>(head.pid, 0);
    seat->decided.set();
  } else if (head.kind == report_kind::ended) {
    seat->how = std::move(text);
    seat->decided.set();
    seat->ended.set();
  } else if (head.kind == report_kind::gone) {
    seat->decided.set();
    seat->ended.set();
    seat->gone.set();
  } else if (head.kind >= report_kind::suspect) {
    worker_link* const link = relay_.find(head.worker);
    if (link != nullptr && link->incarnation() == head.incarnation)
      link->note_silence(head.kind == report_kind::suspect);
  }
}

void node_link::lose() noexcept {
  joined_.reset();
  outbox_.clear();
  for (const auto& [worker, seat] : seats_) {
    failure why(cause::out_of_resources, {});
    try {
      why = why_lost_;
      if (!seat->ended.is_set()) seat->how = fmt::format("node {} {}", node_, trouble_);
    } catch (const std::bad_alloc&) {
      // It has ended without a text.
    }
    seat->decided.set();
    seat->ended.set();
    seat->gone.set();
    worker_link* const link = relay_.find(worker);
    if (link != nullptr && link->incarnation() == seat->incarnation)
      link->end_relayed(std::move(why));
  }
}

// --- its workers ------------------------------------------------------------

std::shared_ptr<node_seat> node_link::find(int worker) const noexcept {
  const auto at = seats_.find(worker);
  return at == seats_.end() ? nullptr : at->second;
}

/// Waits for an agent; what is queued then is for that one. Ends when that has said what
/// came of it.
task<void> node_link::order_start(int worker, std::shared_ptr<node_seat> seat,
                                  std::string invitation) {
  while (!joined_.is_set()) co_await joined_;
  order_head head{};
  head.kind = order_kind::start;
  head.worker = worker;
  head.incarnation = seat->incarnation;
  outbox_.push(head, std::move(invitation));
  seats_[worker] = seat;
  co_await seat->decided;
}

task<void> node_link::start(int worker, std::uint64_t incarnation,
                            std::string invitation) {
  const auto seat = std::make_shared<node_seat>();
  seat->incarnation = incarnation;
  try {
    co_await within(order_start(worker, seat, std::move(invitation)), join_);
  } catch (const timed_out&) {
    seat->how =
        fmt::format("node {} {}", node_,
                    joined_.is_set() ? "has not said that it has started it" : trouble_);
    seat->ended.set();
  }
  if (seat->ended.is_set()) throw world_error(failure(cause::not_joined, seat->how));
}

task<void> node_link::end(int worker, duration patience) {
  const std::shared_ptr<node_seat> seat = find(worker);
  if (!seat) co_return;
  if (joined_.is_set()) {
    order_head head{};
    head.kind = order_kind::end;
    head.worker = worker;
    head.incarnation = seat->incarnation;
    head.patience = patience.count();
    outbox_.push(head, {});
  }
  auto gone = [&]() -> task<void> { co_await seat->gone; };
  try {
    co_await within(gone(), patience + patience_with_end);
  } catch (const timed_out&) {
    access::core(runtime_).log(
        log_level::error,
        fmt::format("node {} has not said that worker {} is gone", node_, worker));
  }
  if (find(worker) == seat) seats_.erase(worker);
}

}  // namespace manyworlds::inline v0::detail
