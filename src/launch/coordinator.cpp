#include "launch/coordinator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/serve/accept.hpp"
#include "serve/join_queue.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// The pause after an error of the backend's store.
constexpr duration store_pause = std::chrono::milliseconds(100);

}  // namespace

bool is_plain_name(std::string_view name, std::size_t longest) noexcept {
  return !name.empty() && name.size() <= longest && name != "." && name != ".." &&
         name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
             "0123456789-_.") == std::string_view::npos;
}

std::string wrong_with(const node_description& node) {
  constexpr std::size_t longest_name = 64;
  constexpr std::size_t longest_host = 255;
  constexpr int most_slots = 4096;
  const bool is_printable = std::all_of(node.host.begin(), node.host.end(),
                                        [](char c) { return c > ' ' && c <= '~'; });
  if (!is_plain_name(node.id, longest_name))
    return fmt::format("\"{:.80}\" is no id of a node", node.id);
  if (!is_plain_name(node.role, longest_name))
    return fmt::format("\"{:.80}\" is no name of a role", node.role);
  if (node.host.empty() || node.host.size() > longest_host || !is_printable)
    return fmt::format("\"{:.80}\" is no name of a host", node.host);
  if (node.slots < 1 || node.slots > most_slots)
    return fmt::format("a node of {} workers", node.slots);
  return {};
}

service_name rendezvous_service(const std::string& run_id) { return "rdzv/" + run_id; }

world_options world_of_two(const rendezvous_limits& limits) {
  world_options how;
  // Half of it ends the connection, and in the other half another one may come.
  how.broken_after = limits.silence / 2;
  how.suspect_after = std::min(how.suspect_after, how.broken_after);
  return how;
}

// ---------------------------------------------------------------------------------------

coordinator::session::session(coordinator& c) : owner_(c) {
  place_ = c.sessions_.insert(c.sessions_.end(), this);
}

coordinator::session::~session() {
  owner_.sessions_.erase(place_);
  owner_.fewer_agents_.set();
  // After its own departure nothing is left to be lost. A later connection of the same
  // node stands in for this one.
  const bool is_succeeded =
      std::any_of(owner_.sessions_.begin(), owner_.sessions_.end(), [&](session* other) {
        return other->is_known_ && other->said_.node.id == said_.node.id;
      });
  if (!is_known_ || said_.has_left || is_succeeded) return;
  if (has_died_) {
    owner_.table_.lose(said_.node.id);
  } else {
    owner_.table_.miss(said_.node.id, owner_.runtime_.home().now());
  }
  owner_.to_decide_.set();
}

void coordinator::session::hear(agent_words said) {
  refusal_ = owner_.objection_to(said);
  if (!refusal_.empty()) {
    changed_.set();
    return;
  }
  if (is_known_ && said.node.id != said_.node.id)
    throw wire_error("a node has changed its id");
  const time_point now = owner_.runtime_.home().now();
  owner_.table_.note_number(said.highest);
  std::uint64_t knows = 0;
  if (!said.last_round.empty()) {
    const round last = round::from_json(said.last_round);
    knows = last.number;
    owner_.table_.learn(last, said.finished, now);
  }
  // A node that has not heard yet of the round that it is in does not ask for the next.
  const std::optional<round>& stands = owner_.table_.last();
  const bool has_heard =
      !stands || !stands->find(said.node.id) || knows >= stands->number;
  said_ = std::move(said);
  is_known_ = true;
  // What it saw during an older round says nothing about the nodes of this one.
  if (stands && knows == stands->number) {
    for (const std::string& id : said_.died) owner_.table_.note_death(id);
    if (!said_.notice.empty() && stands->find(said_.node.id))
      owner_.board_.post(knows, said_.node.id, said_.notice);
  }
  if (said_.closes) owner_.closing_ = true;
  if (said_.has_left) {
    owner_.table_.leave(said_.node.id, said_.how);
  } else {
    owner_.table_.join(said_.node, said_.asks && has_heard, now, said_.place);
  }
  owner_.to_decide_.set();
}

coordinator_words coordinator::session::words() {
  const round_table& table = owner_.table_;
  coordinator_words w;
  w.seat = owner_.seat_.name();
  w.node = owner_.self_;
  w.refusal = refusal_;
  w.closed = table.is_closed();
  w.asking = static_cast<std::uint32_t>(table.asking());
  if (!table.last()) return w;
  w.last_round = table.last()->to_json();
  w.finished = table.finished();
  w.change = table.over().change;
  w.about = table.over().node;
  const bool has_room = table.last()->nodes.size() < table.limits().max_nodes;
  if (w.change == round_change::none && has_room && table.waiting() > 0)
    w.change = round_change::node_waits;
  w.notices = owner_.board_.since(told_, table.last()->number);
  if (owner_.board_.has_more(told_)) changed_.set();
  return w;
}

// ---------------------------------------------------------------------------------------

coordinator::coordinator(runtime& rt, rendezvous_backend& backend, coordinator_seat& seat,
                         const rendezvous_options& options, std::string self)
    : runtime_(rt),
      backend_(backend),
      seat_(seat),
      options_(options),
      self_(std::move(self)),
      table_(options.limits, options.run_id, options.limits.silence / 2) {}

task<void> coordinator::run() {
  co_await recall();
  co_await scope::run([this](scope& s) -> task<void> {
    s.spawn(take_agents());
    s.spawn(take_outsiders());
    s.spawn([this, &s]() -> task<void> {
      co_await decide();
      s.cancel();
    });
    co_await seat_.lost();
    s.cancel();
  });
}

/// Asks until the backend's store has answered, and says once that it does not.
template <class Ask>
task<bool> coordinator::insist(Ask ask) {
  for (bool is_told = false;;) {
    std::optional<bool> answer;
    try {
      answer = co_await ask();
    } catch (const store_error& e) {
      if (!std::exchange(is_told, true))
        access::core(runtime_).log(log_level::warning, e.what());
    }
    if (answer) co_return *answer;
    co_await sleep_for(store_pause);
  }
}

/// Reads what the coordinators before have published.
task<void> coordinator::recall() {
  auto reading = [this]() -> task<bool> {
    const bool is_closed = co_await backend_.is_closed();
    const std::string last = co_await seat_.read();
    if (is_closed) table_.close();
    if (!last.empty()) recall_round(last);
    co_return true;
  };
  co_await insist(reading);
}

/// What is no round was written by no coordinator of ours, and is overwritten.
void coordinator::recall_round(const std::string& text) {
  try {
    table_.learn(round::from_json(text), {}, runtime_.home().now());
  } catch (const std::invalid_argument& e) {
    access::core(runtime_).log(log_level::warning, e.what());
  }
}

task<void> coordinator::take_agents() {
  accept_options what;
  what.service = rendezvous_service(options_.run_id);
  what.world = world_of_two(options_.limits);
  auto body = [this](world& w) -> task<void> { return serve(w); };
  co_await accept(runtime_, backend_.meeting_place(), what, body);
}

task<void> coordinator::take_outsiders() {
  for (;;) {
    round_node node;
    auto waiting = [&]() -> task<bool> {
      node = co_await seat_.next_outsider();
      co_return true;
    };
    co_await insist(waiting);
    table_.join_outsider(node, runtime_.home().now());
    to_decide_.set();
  }
}

task<void> coordinator::serve(world& w) {
  session s(*this);
  auto telling = [&]() -> task<void> {
    for (;;) {
      co_await s.changed();
      s.changed().reset();
      co_await say(w, s.words().encode());
    }
  };
  auto hearing = [&]() -> task<void> {
    for (;;) {
      const bytes message = co_await hear(w);
      s.hear(agent_words::decode(message));
    }
  };
  try {
    co_await scope::run([&](scope& both) -> task<void> {
      both.spawn(telling());
      both.spawn(hearing());
      co_return;
    });
  } catch (const world_error& e) {
    if (e.failure().cause == cause::peer_died) s.note_death();
    throw;
  }
}

/// Decides, publishes and tells, one after the other, until the seat is lost.
task<void> coordinator::decide() {
  for (;;) {
    to_decide_.reset();
    if (closing_ && !table_.is_closed()) {
      const bool is_ours = co_await close();
      if (!is_ours) co_return;
    }
    const std::optional<round> next = table_.decide(runtime_.home().now());
    if (next) {
      const bool is_ours = co_await publish(*next);
      if (!is_ours) co_return;
    }
    refuse_surplus();
    tell_all();
    const time_point until = table_.deadline().value_or(time_point::max());
    co_await when_any(to_decide_.wait(), sleep_until(until));
  }
}

task<bool> coordinator::publish(const round& decided) {
  const std::string text = decided.to_json();
  auto writing = [&]() -> task<bool> { return seat_.publish(text); };
  const bool is_ours = co_await insist(writing);
  if (is_ours) table_.publish(decided);
  co_return is_ours;
}

task<bool> coordinator::close() {
  auto writing = [this]() -> task<bool> { return seat_.close(); };
  const bool is_ours = co_await insist(writing);
  if (is_ours) table_.close();
  co_return is_ours;
}

/// Nodes that wait for a place beside a round that stands and is full are spares.
void coordinator::refuse_surplus() {
  const std::optional<round>& last = table_.last();
  const rendezvous_limits& limits = options_.limits;
  const bool stands = last && table_.over().change == round_change::none;
  if (!limits.spares || !stands || last->nodes.size() < limits.max_nodes) return;
  std::size_t waiting = 0;
  for (session* each : sessions_) {
    if (each->is_spare_of(*last) && ++waiting > *limits.spares) {
      each->refuse(fmt::format("run {} has {} nodes and {} spares", options_.run_id,
                               last->nodes.size(), *limits.spares));
    }
  }
}

void coordinator::tell_all() noexcept {
  for (session* each : sessions_) each->changed().set();
}

std::string coordinator::objection_to(const agent_words& said) const {
  const std::string wrong = wrong_with(said.node);
  if (!wrong.empty()) return wrong;
  const rendezvous_limits& ours = options_.limits;
  // Given places and others would meet.
  const bool are_given = backend_.place().has_value();
  if (said.place.has_value() != are_given) {
    return fmt::format("nodes of run {} are {}given their places, and the one on {} is{}",
                       options_.run_id, are_given ? "" : "not ", said.node.host,
                       are_given ? " not" : "");
  }
  const int place = said.place.value_or(0);
  if (place < 0 || static_cast<std::size_t>(place) >= ours.max_nodes)
    return fmt::format("node rank {} of {} nodes", place, ours.max_nodes);
  const node_description* const holder = said.place ? table_.holder_of(place) : nullptr;
  if (holder && holder->id != said.node.id) {
    return fmt::format("node rank {} is that of node {} on {}", place, holder->id,
                       holder->host);
  }
  if (said.min_nodes != ours.min_nodes || said.max_nodes != ours.max_nodes) {
    return fmt::format(
        "the coordinator of run {} wants {} to {} nodes, and the node on {} wants {} to "
        "{}",
        options_.run_id, ours.min_nodes, ours.max_nodes, said.node.host, said.min_nodes,
        said.max_nodes);
  }
  return {};
}

task<void> coordinator::leave_nothing() {
  try {
    join_queue waiting(access::core(runtime_), backend_.meeting_place(),
                       rendezvous_service(options_.run_id));
    co_await waiting.erase_if_empty();
  } catch (const store_error& e) {
    access::core(runtime_).log(log_level::debug, e.what());
  }
}

task<void> coordinator::until_agents(std::size_t at_most) {
  while (sessions_.size() > at_most) {
    fewer_agents_.reset();
    co_await fewer_agents_;
  }
}

}  // namespace manyworlds::inline v0::detail
