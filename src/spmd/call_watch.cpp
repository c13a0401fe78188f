#include "spmd/call_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <string>
#include <utility>

#include "launch/plain_text.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "spmd/session_core.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

using namespace std::chrono_literals;

namespace {

constexpr duration call_watch_period = 1s;
// How many looks behind the first find a worker at a call before that is named.
constexpr int looks_until_named = 5;

/// What others have written may neither command a terminal nor look like lines of ours.
std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return plain_text(text);
}

}  // namespace

void call_watch::show() {
  shown_ = std::make_shared<const reporter::session_source>([this] { return report(); });
  access::core(core_.of()).reports().tell_of_session(shown_);
}

task<void> call_watch::run() {
  seen_.resize(core_.all_workers().size());
  for (;;) {
    co_await sleep_for(call_watch_period);
    try {
      look();
    } catch (const std::bad_alloc&) {
      // Later looks may have memory.
    }
  }
}

void call_watch::look() {
  for (const int id : core_.all_workers())
    look_at(core_.link_of(id), seen_[static_cast<std::size_t>(id)]);
}

void call_watch::look_at(worker_link& link, seen& last) {
  call_record* const call = link.at_call();
  if (call == nullptr || call->id != last.call) {
    last = {call == nullptr ? 0 : call->id, 0};
    return;
  }
  link.ask();
  if (++last.looks < looks_until_named || call->has_limit || call->is_named) return;
  call->is_named = true;
  access::core(core_.of())
      .log(log_level::warning,
           fmt::format("session {}: call {} of {} has not ended after {} s: {}",
                       core_.name(), call->id, call->is_sync() ? "sync" : call->function,
                       looks_until_named, report().doing()));
}

session_report call_watch::report() {
  const time_point now = core_.home().now();
  session_report all{core_.name(), core_.open_calls(), {}};
  for (const session_worker& each : core_.describe()) {
    worker_link& link = core_.link_of(each.id);
    session_worker_report& w = all.workers.emplace_back();
    w.id = each.id;
    w.pid = each.pid;
    w.incarnation = each.incarnation;
    w.state = each.state == worker_state::starting ? "starting"
              : each.state == worker_state::lost   ? "lost: " + one_line(each.loss)
              : link.is_stuck()                    ? "stuck in " + each.stuck_in
                                                   : "ready";
    w.waiting = link.waiting();
    w.sent = link.sent();
    // One that answers does so before the next look.
    if (link.asked() && now - *link.asked() >= call_watch_period)
      w.silent_for = now - *link.asked();
    const call_record* const call = link.at_call();
    if (call == nullptr) continue;
    w.call = call->id;
    w.function = call->is_sync() ? "sync" : call->function;
    link.ask();
    const worker_link::status& said = link.said();
    if (said.what.call != call->id) continue;
    w.in_call = said.what.in_call + (now - said.when);
    w.doing = one_line(said.what.doing);
  }
  return all;
}

}  // namespace manyworlds::inline v0::detail
