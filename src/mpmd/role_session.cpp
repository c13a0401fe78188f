#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "duration_text.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "mpmd/role_core.hpp"
#include "mpmd/role_workers.hpp"
#include "mpmd/worker_post.hpp"
#include "spmd/session_core.hpp"
#include "spmd/worker_invitation.hpp"
#include "spmd/worker_process.hpp"

namespace manyworlds::inline v0::detail {

/// Returns the role if it is a session. Errors: std::logic_error.
static const graph_role& session_role(const job_graph& graph, const instance_id& self) {
  const graph_role& role = *graph.find_role(self.role);
  if (role.kind == role_kind::spmd) return role;
  throw std::logic_error(fmt::format("the role \"{}\" is no session: its kind is {}",
                                     self.role, name_of(role.kind)));
}

// --- the controller -------------------------------------------------------------------

/// Those that the master starts again are taken in, as often as it does.
static session_options limits_in(const graph_role& role, session_options limits) {
  if (limits.respawn.times == 0 && role.restarts != restart_when::never)
    limits.respawn.times = SIZE_MAX;
  if (limits.name == session_options().name) limits.name = role.name;
  return limits;
}

task<session> role_core::start_session(session_options limits) {
  const graph_role& role = session_role(graph(), instance_);
  if (instance_.index != 0)
    throw std::logic_error(fmt::format("{} is a worker of its session, which {} starts",
                                       instance_.text(),
                                       instance_id{role.name, 0}.text()));
  if (had_session_)
    throw std::logic_error(fmt::format("{} has had its session", instance_.text()));
  limits = limits_in(role, limits);
  const int count = static_cast<int>(role.counts.start) - 1;
  check_session(count, count, limits);
  auto workers = std::make_unique<role_workers>(
      *keys_, role.name, incarnation_, limits,
      [this](const instance_id& worker, std::uint64_t incarnation,
             const std::string& why) { tell_lost(worker, incarnation, why); });
  auto core =
      std::make_shared<session_core>(*runtime_, std::move(workers), count, limits);
  session_ = core;
  had_session_ = true;
  // From here on its end is the session's.
  session made = access::make<session>(core);
  try {
    co_await within(session_core::begin(core), limits.start);
  } catch (const timed_out&) {
    failure why(cause::not_joined, core->absent_workers());
    why.world = world_name(core->name());
    why.operation = operation_kind::form;
    throw world_error(std::move(why));
  }
  co_return made;
}

void role_core::tell_lost(const instance_id& worker, std::uint64_t incarnation,
                          const std::string& why) const {
  agent_word word = word_of(agent_wire::word_kind::lost);
  word.about = worker;
  word.steps = incarnation;
  word.value = why;
  to_agent_.push(std::move(word));
}

/// It uses the store of this program's job, which ends soon.
task<void> role_core::end_session() {
  const auto core = session_.lock();
  if (!core) co_return;
  core->abandon();
  co_await session_core::close(core);
}

void role_core::abandon_session() noexcept {
  if (const auto core = session_.lock()) core->abandon();
}

// --- a worker -------------------------------------------------------------------------

/// Serves one controller. Returns whether the session was closed; otherwise the
/// controller is gone, or has recalled this worker. Errors: those of `serve_controller`.
static task<bool> serve_one(runtime& rt, store& keys, const function_table& functions,
                            worker_post& post, std::uint64_t number, worker_seat seat) {
  last_alarm at_last;
  auto live = [&]() -> task<bool> {
    co_await serve_controller(rt, keys, functions, std::move(seat), at_last);
    co_return true;
  };
  auto leave = [&]() -> task<void> {
    co_await post.recalled(number);
    at_last.set();
  };
  try {
    const auto [closed, left] = co_await when_any(live(), leave());
    co_return closed.has_value();
  } catch (const world_error&) {
    // It takes this one to be lost, or is gone itself.
  }
  co_return false;
}

task<void> role_core::work(const function_table& functions) {
  static_cast<void>(session_role(graph(), instance_));
  if (instance_.index == 0)
    throw std::logic_error(
        fmt::format("{} is the controller of its session", instance_.text()));
  worker_post post(*keys_, instance_);
  for (;;) {
    const std::uint64_t number = co_await post.announce(incarnation_, ::getpid());
    ready();
    // With the job its controller leaves too, and ends what this one does for it.
    const auto [invitation, left] = co_await when_any(post.be_invited(number), leaving());
    if (!invitation) co_return;
    worker_seat seat = worker_invitation::of(*invitation).seat;
    seat.on_host = local_rank_;
    const bool is_closed =
        co_await serve_one(*runtime_, *keys_, functions, post, number, std::move(seat));
    if (is_closed) co_return;
  }
}

}  // namespace manyworlds::inline v0::detail
