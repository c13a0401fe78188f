#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "exception_text.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "mpmd/role_core.hpp"
#include "mpmd/role_workers.hpp"
#include "mpmd/worker_post.hpp"
#include "spmd/mesh_name.hpp"
#include "spmd/session_core.hpp"
#include "spmd/worker_invitation.hpp"
#include "spmd/worker_loop.hpp"

namespace manyworlds::inline v0::detail {

/// Returns the role if it is a session. Errors: std::logic_error.
static const graph_role& session_role(const job_graph& graph, const instance_id& self) {
  const graph_role& role = *graph.find_role(self.role);
  if (role.kind == role_kind::spmd) return role;
  throw std::logic_error(fmt::format("the role \"{}\" is no session: its kind is {}",
                                     self.role, name_of(role.kind)));
}

// --- the controller -------------------------------------------------------------------

task<session> role_core::start_session(session_options limits) {
  const graph_role& role = session_role(graph(), instance_);
  if (instance_.index != 0)
    throw std::logic_error(fmt::format("{} is a worker of its session, which {} starts",
                                       instance_.text(),
                                       instance_id{role.name, 0}.text()));
  if (had_session_)
    throw std::logic_error(fmt::format("{} has started its session", instance_.text()));
  if (limits.window == 0)
    throw std::invalid_argument("session: a window of no commands lets none through");
  had_session_ = true;
  if (limits.respawn.times == 0 && role.restarts != restart_when::never)
    limits.respawn = {.times = role.budget.tries, .per = role.budget.per};
  if (limits.name == session_options().name) limits.name = role.name;
  auto workers = std::make_unique<role_workers>(
      *runtime_, *keys_, role.name, limits,
      [this](const instance_id& worker, std::uint64_t incarnation,
             const std::string& why) { tell_lost(worker, incarnation, why); });
  const int count = static_cast<int>(role.counts.start) - 1;
  auto core =
      std::make_shared<session_core>(*runtime_, std::move(workers), count, limits);
  session_ = core;
  // From here on its end is the session's.
  session made = access::make<session>(core);
  co_await session_core::begin(core);
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

// --- a worker -------------------------------------------------------------------------

namespace {

/// Joins one session of its controller's, until that is closed, the controller is gone
/// or wants it back.
class role_worker {
 public:
  role_worker(runtime& rt, store& keys, const function_table& functions)
      : runtime_(rt), keys_(keys), functions_(functions) {}

  /// Returns whether the session was closed. Errors: those of `worker_loop`, but for the
  /// break of its control world.
  [[nodiscard]] task<bool> serve(worker_post& post, std::uint64_t number,
                                 worker_seat seat) {
    try {
      loop_.emplace(runtime_, keys_, functions_, seat);
    } catch (...) {
      trouble_ = handled_exception_text();
    }
    if (!loop_) {
      co_await keys_.set(refusal_key(seat.session, seat.id, seat.incarnation), trouble_);
      throw std::runtime_error(trouble_);
    }
    // What computes, or blocks its thread, hears of no cancellation.
    const auto end_in_a_second = [] { ::alarm(1); };
    loop_->when_controller_is_gone(end_in_a_second);
    auto live = [this]() -> task<bool> {
      co_await loop_->run();
      co_return true;
    };
    auto leave = [&]() -> task<void> {
      co_await post.wanted_back(number);
      end_in_a_second();
    };
    bool is_closed = false;
    try {
      const auto [closed, left] = co_await when_any(live(), leave());
      is_closed = closed.has_value();
    } catch (const world_error&) {
      // Its controller is gone, or takes this one to be lost.
    }
    ::alarm(0);
    co_return is_closed;
  }

 private:
  runtime& runtime_;
  store& keys_;
  const function_table& functions_;
  std::optional<worker_loop> loop_;
  std::string trouble_;
};

}  // namespace

task<void> role_core::work(const function_table& functions) {
  const graph_role& role = session_role(graph(), instance_);
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
    // GPUs that it does not share it counts from 0 on.
    seat.on_host = role.needs.gpus > 0 ? 0 : local_rank_;
    role_worker once(*runtime_, *keys_, functions);
    if (co_await once.serve(post, number, std::move(seat))) co_return;
  }
}

}  // namespace manyworlds::inline v0::detail
