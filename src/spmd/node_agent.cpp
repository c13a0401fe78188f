#include "spmd/node_agent.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "exception_text.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/world/world_event.hpp"
#include "spmd/process_source.hpp"
#include "spmd/received_command.hpp"
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
      co_await when_any(obey(s), outbox_.write(world_, 0), pass_on(node_wire::commands),
                        pass_on(node_wire::urgent), watch_silence());
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
      s.spawn(start(s, head.worker, head.incarnation, std::move(told.text)));
    } else if (head.kind == order_kind::end) {
      s.spawn(end(head.worker, head.incarnation, duration(head.patience)));
    } else if (head.kind == order_kind::fail) {
      if (const auto worker = find(head.worker, head.incarnation))
        worker->fail(std::move(told.text));
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

// --- commands and replies -------------------------------------------------------------

/// Returns whether the lengths agree, before any memory is taken for them (law 11).
static bool is_command(const node_wire::command_for& head, std::size_t bytes) noexcept {
  const std::size_t targets = head.targets * sizeof(node_wire::command_target);
  return head.targets <= command_wire::most_members && targets <= bytes &&
         received_command::fits(head.command, bytes - targets);
}

/// Into each worker's own queue, so that none is waited for. What comes late, for an
/// incarnation that was ended, is dropped.
task<void> node_agent::pass_on(lane on) {
  for (;;) {
    const auto told = co_await world_.recv_message<node_wire::command_for>(from{0}, on);
    if (!is_command(told.head, told.info.bytes)) {
      world_.fail("the lengths of a command contradict each other");
      continue;
    }
    std::vector<node_wire::command_target> targets(told.head.targets);
    received_block block(told.info.bytes - std::span(targets).size_bytes());
    if (told.info.has_payload) {
      const std::array<buffer_view, 2> both{
          buffer_view(std::as_writable_bytes(std::span(targets))), block.view()};
      co_await world_.recv(both, from{0}, on);
    }
    for (const node_wire::command_target& each : targets) {
      const auto worker = find(each.worker, each.incarnation);
      if (!worker) continue;
      hosted_worker::command own{told.head.command, block, each.behind};
      own.head.flags = each.flags;
      worker->push(std::move(own), on == node_wire::urgent);
    }
  }
}

/// Tells which workers are silent, as their control worlds notice it.
task<void> node_agent::watch_silence() {
  const world_events told(
      access::core(runtime_).events().subscribe(2 * command_wire::most_members));
  for (;;) {
    const world_event e = co_await told.next();
    const bool is_suspect = e.kind == world_event_kind::suspect;
    if (!is_suspect && e.kind != world_event_kind::recovered) continue;
    for (const auto& [id, worker] : workers_) {
      if (!(e.world == worker->name())) continue;
      tell(is_suspect ? report_kind::suspect : report_kind::recovered, id,
           worker->incarnation());
    }
  }
}

// --- its workers ------------------------------------------------------------

std::shared_ptr<hosted_worker> node_agent::find(
    int worker, std::uint64_t incarnation) const noexcept {
  const auto at = workers_.find(worker);
  const bool is_that = at != workers_.end() && at->second->incarnation() == incarnation;
  return is_that ? at->second : nullptr;
}

process_options node_agent::options_for(worker_invitation invited) const {
  const runtime_options& own = access::core(runtime_).options();
  invited.store = place_.store;
  invited.listen = place_.listen;
  invited.insecure = own.insecure;
  process_options how = program_;
  how.set(worker_invitation::variable, invited.text());
  how.set(worker_invitation::store_secret_variable, own.secret.str());
  how.set(worker_invitation::link_secret_variable, own.secret.str());
  how.restart({});
  if (!place_.log_folder.empty()) {
    how.output(
        to_file(fmt::format("{}/worker-{}.log", place_.log_folder, invited.seat.id)));
  }
  return how;
}

/// Precondition of the controller's: nothing is left of the incarnation before.
task<void> node_agent::start(scope& s, int worker, std::uint64_t incarnation,
                             std::string invitation) {
  std::shared_ptr<hosted_worker> own;
  try {
    worker_invitation invited = worker_invitation::of(invitation);
    invited.seat.id = worker;
    invited.seat.incarnation = incarnation;
    own = std::make_shared<hosted_worker>(runtime_, meeting_, invited.seat,
                                          options_for(invited));
    workers_[worker] = own;
    co_await own->process().started();
  } catch (...) {
    tell(report_kind::ended, worker, incarnation, handled_exception_text());
    own = nullptr;
  }
  if (!own) co_return;
  tell(report_kind::started, worker, incarnation, {}, own->process().pid());
  s.spawn(hosted_worker::run(own, world_));
  const exit_reason reason = co_await own->process().ended();
  tell(report_kind::ended, worker, incarnation, reason.text());
}

task<void> node_agent::end(int worker, std::uint64_t incarnation, duration patience) {
  if (const auto own = find(worker, incarnation)) {
    own->let_go();
    co_await end_process(runtime_, own->process(), patience);
    if (find(worker, incarnation) == own) workers_.erase(worker);
  }
  tell(report_kind::gone, worker, incarnation);
}

}  // namespace manyworlds::inline v0::detail
