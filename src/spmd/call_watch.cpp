#include "spmd/call_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "duration_text.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "spmd/session_core.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

using namespace std::chrono_literals;

void call_watch::show(const std::weak_ptr<session_core>& session) {
  shown_ = std::make_shared<const reporter::session_source>(
      [session]() -> std::optional<session_report> {
        const auto core = session.lock();
        if (!core) return std::nullopt;
        return core->watch().report();
      });
  access::core(core_.of()).reports().tell_of_session(shown_);
}

task<void> call_watch::run() {
  for (;;) {
    co_await sleep_for(1s);
    look();
  }
}

void call_watch::look() {
  const call_record* const oldest = core_.oldest_open();
  if (oldest != nullptr && oldest->id <= latest_.front()) {
    for (const int worker : core_.all_workers()) core_.link_of(worker).ask();
  }
  if (oldest != nullptr && oldest->id <= latest_.back() && oldest->id != named_) {
    named_ = oldest->id;
    access::core(core_.of())
        .log(log_level::warning,
             fmt::format("session {}: call {} of {} has not ended after {} s: {}",
                         core_.name(), oldest->id,
                         oldest->is_sync() ? "sync" : oldest->function, patience,
                         doing()));
  }
  std::shift_right(latest_.begin(), latest_.end(), 1);
  latest_.front() = core_.last_call();
}

/// Workers that do the same are named together.
std::string call_watch::doing() const {
  std::map<std::string, std::string> by_what;
  for (const session_worker_report& w : report().workers) {
    std::string what = w.state;
    if (w.call != 0) what = fmt::format("{} (call {})", w.doing, w.call);
    if (w.silent_for)
      what += fmt::format(", and has not answered for {}", duration_text(*w.silent_for));
    std::string& who = by_what[what];
    who += fmt::format("{}{}", who.empty() ? "worker " : ", ", w.id);
  }
  std::string text;
  for (const auto& [what, who] : by_what)
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", who, what);
  return text;
}

session_report call_watch::report() const {
  const time_point now = core_.home().now();
  session_report all{core_.name(), core_.open_calls(), {}};
  for (const session_worker& each : core_.describe()) {
    const worker_link& link = core_.link_of(each.id);
    const worker_link::status& said = link.said();
    session_worker_report w{.id = each.id,
                            .pid = each.pid,
                            .incarnation = each.incarnation,
                            .state = "ready",
                            .waiting = link.waiting(),
                            .begun = link.begun(),
                            .doing = {},
                            .silent_for = {}};
    if (each.state == worker_state::starting) w.state = "starting";
    if (each.state == worker_state::lost) w.state = "lost: " + each.loss;
    if (link.is_stuck()) w.state = "stuck in " + each.stuck_in;
    if (said.call != 0 && link.begun() > 0) {
      w.call = said.call;
      w.doing = said.doing;
      w.in_call = said.in_call + (now - said.told);
    }
    // One that answers does so before it is asked again.
    if (link.asked() && now - *link.asked() > 1s) w.silent_for = now - *link.asked();
    all.workers.push_back(std::move(w));
  }
  return all;
}

}  // namespace manyworlds::inline v0::detail
