#include "spmd/node_agent.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

#include "exception_text.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "spmd/process_source.hpp"
#include "spmd/worker_invitation.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

// The least time to form the world with a controller that is there.
constexpr duration patience_with_world = std::chrono::seconds(1);

using node_wire::order_head;
using node_wire::order_kind;
using node_wire::report_head;
using node_wire::report_kind;

node_agent::node_agent(runtime& rt, store& meeting, node_place place,
                       process_options program)
    : runtime_(rt),
      meeting_(meeting),
      place_(std::move(place)),
      program_(std::move(program)) {}

/// Its controller says first how long a peer may be silent.
task<void> node_agent::join() {
  const time_point until = later(runtime_.home().now(), place_.wait);
  const std::string said = co_await meeting_.get(node_wire::limits_key, place_.wait);
  std::int64_t suspect_after = 0;
  std::int64_t lost_after = 0;
  std::istringstream in(said);
  in >> suspect_after >> lost_after;
  world_ = world(
      runtime_, meeting_,
      {.name = node_wire::node_name(place_.node),
       .rank = 1,
       .size = 2,
       .form = std::max<duration>(until - runtime_.home().now(), patience_with_world),
       .suspect_after = duration(suspect_after),
       .broken_after = duration(lost_after)});
  co_await world_;
}

task<void> node_agent::run() {
  auto end = [this]() -> task<void> { co_await told_to_end_; };
  const auto body = [&](scope& s) -> task<void> {
    auto serve = [&]() -> task<void> {
      co_await join();
      tell(report_kind::hello, static_cast<int>(node_wire::version), 0);
      co_await when_any(obey(s), outbox_.write(world_, 0));
    };
    co_await when_any(serve(), end());
    s.cancel();
  };
  try {
    co_await scope::run(body);
    workers_.clear();
    if (world_ && world_.state() == world_state::up) co_await world_.leave();
  } catch (const world_error& e) {
    // The controller has no more use for it, and drops its end; or it is told to end,
    // whatever becomes of the world.
    const bool is_in_order = e.cause() == cause::closed ||
                             e.cause() == cause::abandoned || told_to_end_.is_set();
    if (!is_in_order) throw;
  }
}

task<void> node_agent::obey(scope& s) {
  for (;;) {
    auto told = co_await receive_from_node<order_head>(world_, 0);
    const order_head& head = told.head;
    if (head.kind == order_kind::start) {
      s.spawn(start(head.worker, head.incarnation, std::move(told.text)));
    } else if (head.kind == order_kind::end) {
      s.spawn(end(head.worker, head.incarnation, duration(head.patience)));
    } else {
      world_.fail("an order that this version does not know");
    }
  }
}

void node_agent::tell(report_kind kind, int worker, std::uint64_t incarnation,
                      std::string text, std::int64_t pid) {
  report_head head{};
  head.kind = kind;
  head.worker = worker;
  head.incarnation = incarnation;
  head.pid = pid;
  text.resize(std::min(text.size(), node_wire::longest_text));
  outbox_.push(head, std::move(text));
}

process_options node_agent::options_for(int worker, std::string invitation) const {
  worker_invitation invited = worker_invitation::of(invitation);
  const runtime_options& own = access::core(runtime_).options();
  invited.store = place_.store;
  invited.listen = place_.listen;
  invited.insecure = own.insecure;
  process_options how = program_;
  how.set(worker_invitation::variable, invited.text());
  how.set(worker_invitation::store_secret_variable, own.secret.str());
  how.set(worker_invitation::link_secret_variable, own.secret.str());
  how.restart({});
  if (!place_.log_folder.empty())
    how.output(to_file(fmt::format("{}/worker-{}.log", place_.log_folder, worker)));
  return how;
}

/// Precondition of the controller's: nothing is left of the incarnation before.
task<void> node_agent::start(int worker, std::uint64_t incarnation,
                             std::string invitation) {
  std::shared_ptr<supervised_process> process;
  try {
    process = std::make_shared<supervised_process>(
        runtime_, options_for(worker, std::move(invitation)));
    workers_[worker] = {incarnation, process};
    co_await process->started();
  } catch (...) {
    tell(report_kind::ended, worker, incarnation, handled_exception_text());
    process = nullptr;
  }
  if (!process) co_return;
  tell(report_kind::started, worker, incarnation, {}, process->pid());
  const exit_reason reason = co_await process->ended();
  tell(report_kind::ended, worker, incarnation, reason.text());
}

task<void> node_agent::end(int worker, std::uint64_t incarnation, duration patience) {
  const auto at = workers_.find(worker);
  if (at != workers_.end() && at->second.incarnation == incarnation) {
    const std::shared_ptr<supervised_process> process = at->second.process;
    co_await end_process(runtime_, *process, patience);
    if (const auto now = workers_.find(worker);
        now != workers_.end() && now->second.process == process)
      workers_.erase(now);
  }
  tell(report_kind::gone, worker, incarnation);
}

}  // namespace manyworlds::inline v0::detail
