#include "spmd/worker_replacer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "duration_text.hpp"
#include "exception_text.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "spmd/session_core.hpp"

namespace manyworlds::inline v0::detail {

using namespace std::chrono_literals;

// The first replacement comes at once, each one that follows soon twice as late.
constexpr duration shortest_before_replacing = 50ms;
constexpr duration longest_before_replacing = 5s;

[[noreturn]] static void refuse(const session_core& core, int worker, cause why,
                                const std::string& text) {
  failure f(why, text);
  f.world = world_name(core.name());
  f.rank = worker;
  f.operation = operation_kind::form;
  throw world_error(std::move(f));
}

static enum cause cause_of(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const world_error& e) {
    return e.cause();
  } catch (...) {
    return cause::out_of_resources;
  }
}

task<void> worker_replacer::replace(std::shared_ptr<session_core> core, int worker) {
  if (core->is_ending()) refuse(*core, worker, cause::closed, "the session has ended");
  const std::shared_ptr<attempt> made = core->replacer().begin(worker);
  co_await made->over;
  if (made->error) std::rethrow_exception(made->error);
}

std::shared_ptr<worker_replacer::attempt> worker_replacer::begin(int worker) {
  const auto found = under_way_.find(worker);
  if (found != under_way_.end()) return found->second;
  auto made = std::make_shared<attempt>();
  // It starts in a turn of its own.
  core_.spawn(run(worker, made));
  under_way_.emplace(worker, made);
  return made;
}

task<void> worker_replacer::run(int worker, std::shared_ptr<attempt> made) {
  try {
    co_await bring(worker);
    co_await replay(worker);
  } catch (...) {
    made->error = std::current_exception();
  }
  under_way_.erase(worker);
  made->over.set();
  session_event e{.kind = session_event_kind::replaced,
                  .worker = worker,
                  .incarnation = core_.link_of(worker).incarnation()};
  if (made->error) {
    e.kind = session_event_kind::not_replaced;
    e.cause = cause_of(made->error);
    e.text = exception_text(made->error);
  }
  core_.tell(e);
}

/// Ends when the next incarnation is there. One that is there now is ended first.
task<void> worker_replacer::bring(int worker) {
  worker_link& link = core_.link_of(worker);
  if (link.state() == worker_state::ready) co_await link.end_by_force();
  const std::uint64_t before = link.incarnation();
  while (link.state() != worker_state::ready) {
    if (core_.is_ending()) refuse(core_, worker, cause::closed, "the session has ended");
    if (link.state() == worker_state::lost) {
      if (link.incarnation() != before)
        refuse(core_, worker, cause::not_joined, link.loss());
      link.wanted().set();
    }
    link.decided().reset();
    co_await link.decided();
  }
}

/// Makes again what is replayable, in the order in which it was made first.
task<void> worker_replacer::replay(int worker) {
  register_book& registers = core_.registers();
  std::exception_ptr first;
  for (const register_id which : registers.replayable_on(worker)) {
    // It may have been dropped meanwhile.
    if (!registers.is_live(which)) continue;
    const std::shared_ptr<const kept_call> kept = registers.kept(which, worker);
    remote_request request;
    request.core = core_.shared_from_this();
    request.function = kept->function;
    request.types = kept->types;
    request.workers = {worker};
    request.values = access::make<value_writer>(kept->written, kept->beside);
    request.takes = kept->takes;
    request.into = which;
    request.again = kept;
    request.is_alone = true;
    request.fills = true;
    try {
      co_await remote_call<void, gives_nothing>(std::move(request));
    } catch (...) {
      // The others may do without it.
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

/// Those that are under way are cut with the session.
void worker_replacer::end() noexcept {
  for (const auto& [worker, made] : std::exchange(under_way_, {})) {
    made->error = std::make_exception_ptr(
        world_error(failure(cause::closed, "the session has ended")));
    made->over.set();
  }
}

// --- unasked -------------------------------------------------------------------------

void worker_replacer::note_lost(int worker) {
  if (core_.limits().respawn.times == 0 || core_.is_ending()) return;
  record& own = unasked_[worker];
  // One that fails to come is tried again by the one that started it.
  if (std::exchange(own.is_under_way, true)) return;
  core_.spawn(replace_unasked(worker));
}

task<void> worker_replacer::replace_unasked(int worker) {
  record& own = unasked_[worker];
  const worker_link& link = core_.link_of(worker);
  while (link.state() == worker_state::lost && !core_.is_ending()) {
    // One that was asked for costs none of the budget, and is tried again if it fails.
    if (!under_way_.contains(worker)) {
      if (!take_one(own)) {
        tell_used_up(worker);
        break;
      }
      if (own.pause > 0s) co_await sleep_for(own.pause);
      if (link.state() != worker_state::lost) break;
    }
    try {
      co_await replace(core_.shared_from_this(), worker);
    } catch (const std::exception&) {
      // An event has told it. If the worker did not come, it is lost still.
    }
  }
  own.is_under_way = false;
}

void worker_replacer::tell_used_up(int worker) const {
  const worker_link& link = core_.link_of(worker);
  const respawn_budget& budget = core_.limits().respawn;
  core_.tell({.kind = session_event_kind::not_replaced,
              .worker = worker,
              .incarnation = link.incarnation(),
              .cause = link.why_lost().cause,
              .text = fmt::format("it was replaced {} times within {}: {}", budget.times,
                                  duration_text(budget.per), link.loss())});
}

bool worker_replacer::take_one(record& of) {
  const respawn_budget& budget = core_.limits().respawn;
  const time_point now = core_.home().now();
  const auto is_past = [&](time_point each) { return now - each > budget.per; };
  const bool is_soon =
      !of.times.empty() && now - of.times.back() < longest_before_replacing;
  std::erase_if(of.times, is_past);
  if (of.times.size() >= budget.times) return false;
  of.pause = is_soon ? std::clamp(2 * of.pause, shortest_before_replacing,
                                  longest_before_replacing)
                     : duration(0);
  of.times.push_back(now + of.pause);
  return true;
}

}  // namespace manyworlds::inline v0::detail
