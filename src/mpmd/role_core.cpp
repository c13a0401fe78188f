#include "mpmd/role_core.hpp"

#include <fmt/format.h>

#include <chrono>
#include <stdexcept>
#include <utility>

#include "exception_text.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/serve/connect.hpp"
#include "manyworlds/serve/keep.hpp"
#include "mpmd/incarnation_claim.hpp"
#include "mpmd/instance_fact.hpp"
#include "mpmd/role_group_core.hpp"

namespace manyworlds::inline v0::detail {

using agent_wire::word_kind;

// A workload may say at each step how far it is; its agent need not hear each.
constexpr duration between_steps_told = std::chrono::milliseconds(250);
constexpr duration patience_with_agent = std::chrono::milliseconds(500);
constexpr std::size_t most_peer_events = 1024;

const job_graph& role_core::graph() const {
  if (!placed_.is_set()) throw std::logic_error("a role's graph is known within its run");
  return graph_;
}

const std::map<std::string, std::string>& role_core::facts() const {
  if (!placed_.is_set())
    throw std::logic_error("a role's facts are known within its run");
  return facts_;
}

// --- the agent ------------------------------------------------------------------------

task<void> role_core::run(runtime& rt, store& meeting, role_context::role_body body) {
  job_meeting own(meeting, job_);
  runtime_ = &rt;
  keys_ = &own.keys();
  incarnation_claim claim(*keys_, instance_, incarnation_);
  const auto all = [&](scope& s) -> task<void> {
    s.spawn(keep_agent());
    s.spawn(tell_ready());
    s.spawn(tell_progress());
    co_await placed_;
    if (!refused_.empty()) throw std::runtime_error(refused_);
    co_await claim.take();
    s.spawn(claim.until_followed());
    const auto program = [&](scope& inner) -> task<void> {
      co_await body(inner);
      inner.cancel();
    };
    // Where this is cut, as by a signal: a handle that lives on ends nothing.
    const struct ending {
      role_core& of;
      ~ending() { of.abandon_session(); }
    } at_last{*this};
    std::exception_ptr error;
    try {
      co_await scope::run(program);
    } catch (...) {
      error = std::current_exception();
    }
    co_await end_session();
    co_await leave_agent();
    if (error) std::rethrow_exception(error);
    s.cancel();
  };
  co_await scope::run(all);
}

task<void> role_core::keep_agent() {
  const auto body = [&](scope& s) -> task<void> {
    const auto serve = [&](world& w) { return serve_agent(w, s); };
    // An agent that is lost ends this process, by the kernel's or its guard's hand.
    co_await connect(*runtime_, *keys_, {.service = job_meeting::workloads_of(node_)},
                     serve, after_close::form_again);
  };
  co_await scope::run(body);
  has_left_.set();
}

/// In order: of a world that breaks its agent would warn. One that is not there is not
/// waited for.
task<void> role_core::leave_agent() {
  const auto left = [this]() -> task<void> { co_await has_left_; };
  is_done_.set();
  try {
    co_await within(left(), patience_with_agent);
  } catch (const timed_out&) {
    // Its world is dropped with this program.
  }
}

agent_word role_core::word_of(word_kind kind) const {
  agent_word word;
  word.kind = kind;
  word.instance = instance_;
  word.incarnation = incarnation_;
  return word;
}

task<void> role_core::serve_agent(world& w, scope& s) {
  agent_word join = word_of(word_kind::join);
  join.value = token_;
  co_await send_word(w, 0, std::move(join));
  agent_word answer = co_await receive_word(w, 0);
  if (answer.kind == word_kind::refusal) {
    refused_ = fmt::format("the agent refuses this process: {}", answer.value);
    placed_.set();
    co_return;
  }
  if (answer.kind != word_kind::place) {
    w.fail("an agent begins with the place of an instance");
    // The world's failure ends this, and the next agent is awaited.
    static_cast<void>(co_await receive_word(w, 0));
  }
  if (!placed_.is_set()) {
    graph_ = job_graph::from_json(answer.graph, "the job's graph");
    facts_ = std::move(answer.spec.facts);
    placed_.set();
  }
  agent_outbox out;
  const current_outbox::while_connected current(to_agent_, out);
  // The connection is new: all is said again.
  if (ready_.is_set()) out.push(word_of(word_kind::ready));
  if (has_progress_.is_set()) out.push(progress_word());
  for (const auto& [key, own] : on_its_way_) out.push(word_of_fact(key, *own));
  const auto done = [this]() -> task<void> { co_await is_done_; };
  co_await when_any(read_agent(w, s), out.write(w, 0), done());
}

task<void> role_core::read_agent(world& w, scope& s) {
  for (;;) {
    agent_word word = co_await receive_word(w, 0);
    hear(std::move(word), s);
  }
}

void role_core::hear(agent_word word, scope& s) {
  if (word.kind == word_kind::leaving) {
    leaving_.set();
  } else if (word.kind == word_kind::ask) {
    s.spawn(answer(std::move(word)));
  } else if (word.kind == word_kind::fact_recorded) {
    const auto at = on_its_way_.find(word.key);
    if (at == on_its_way_.end() || at->second->number != word.steps) return;
    at->second->refused = word.value;
    at->second->recorded.set();
    on_its_way_.erase(at);
  }
}

task<void> role_core::answer(agent_word asked) {
  agent_word told = word_of(word_kind::answer);
  told.incarnation = asked.incarnation;
  told.about = asked.about;
  if (controller_) {
    try {
      told.is_handled = co_await controller_(asked.about);
    } catch (const std::exception&) {
      // It cannot tell: that is a no.
    }
  }
  to_agent_.push(std::move(told));
}

agent_word role_core::progress_word() const {
  agent_word word = word_of(word_kind::progress);
  word.steps = steps_.load();
  return word;
}

task<void> role_core::tell_ready() {
  co_await ready_.wait();
  // While no agent is there this is dropped, and said when one is.
  to_agent_.push(word_of(word_kind::ready));
}

/// A program that never says how far it is costs nothing here.
task<void> role_core::tell_progress() {
  co_await has_progress_.wait();
  for (std::uint64_t told = 0;; co_await sleep_for(between_steps_told)) {
    if (steps_.load() == told) continue;
    told = steps_.load();
    to_agent_.push(progress_word());
  }
}

agent_word role_core::word_of_fact(const std::string& key, const fact& own) const {
  agent_word word = word_of(word_kind::fact);
  word.key = key;
  word.value = own.value;
  word.steps = own.number;
  return word;
}

task<void> role_core::record(std::string key, std::string value) {
  const std::string_view objection = objection_to_fact(key, value.size());
  if (!objection.empty()) throw std::invalid_argument(std::string(objection));
  const auto own = std::make_shared<fact>();
  own->value = std::move(value);
  // One value of a key is on its way at a time: an answer names the key alone.
  for (auto at = on_its_way_.find(key); at != on_its_way_.end();
       at = on_its_way_.find(key)) {
    const auto other = at->second;
    co_await other->recorded;
  }
  own->number = ++facts_told_;
  on_its_way_[key] = own;
  to_agent_.push(word_of_fact(key, *own));
  co_await own->recorded;
  if (!own->refused.empty()) throw std::invalid_argument(own->refused);
}

// --- edges ----------------------------------------------------------------------------

const graph_edge& role_core::edge_named(const std::string& name) const {
  const graph_edge* const found = graph().find_edge(name);
  if (found == nullptr)
    throw std::logic_error(fmt::format("the graph has no edge \"{}\"", name));
  return *found;
}

static std::string_view kind_in_words(const graph_edge& edge) noexcept {
  return edge.kind == edge_kind::bulk ? name_of(edge.shape) : name_of(edge.kind);
}

task<void> role_core::keep_worlds(std::string edge, bool is_group,
                                  role_context::peer_body body) {
  const graph_edge& found = edge_named(edge);
  const bool is_one = found.kind == edge_kind::bulk && found.shape == edge_shape::group;
  if (found.kind != edge_kind::bulk || is_one != is_group)
    throw std::logic_error(
        fmt::format("the edge \"{}\" is a {} edge", edge, kind_in_words(found)));
  return keep_all(std::move(edge), worlds_of_edge(graph_, found, instance_),
                  std::move(body));
}

static void need_calls(const graph_edge& edge) {
  if (edge.kind != edge_kind::calls)
    throw std::logic_error(
        fmt::format("the edge \"{}\" is a {} edge, and carries no calls", edge.name,
                    kind_in_words(edge)));
}

task<void> role_core::answer_calls(std::string edge, role_methods& answers) {
  const graph_edge& found = edge_named(edge);
  need_calls(found);
  const auto serve = [&answers](world& w, const instance_id&) {
    return answers.serve(w);
  };
  return keep_all(std::move(edge), worlds_of_calls(graph_, found, instance_, false),
                  serve);
}

task<void> role_core::ask(std::string edge, role_group& of) {
  const graph_edge& found = edge_named(edge);
  need_calls(found);
  of.core_->begin(edge, instance_, graph_.find_role(found.to)->counts.min);
  const auto reach = [&of](world& w, const instance_id& peer) {
    return of.reach(w, peer);
  };
  return keep_all(std::move(edge), worlds_of_calls(graph_, found, instance_, true),
                  reach);
}

task<void> role_core::keep_all(std::string edge, std::vector<edge_world> own,
                               peer_body body) {
  const auto all = [&](scope& s) -> task<void> {
    for (const edge_world& each : own) s.spawn(keep_one(each, edge, body));
    co_return;
  };
  co_await scope::run(all);
}

task<void> role_core::keep_one(edge_world own, const std::string& edge,
                               const peer_body& body) {
  bool was_up = false;
  const auto in_world = [&](world& w) -> task<void> {
    note({was_up ? peer_event_kind::peer_back : peer_event_kind::peer_came,
          edge,
          own.peer,
          w.epoch(),
          {}});
    was_up = true;
    const std::uint64_t epoch = w.epoch();
    try {
      co_await body(w, own.peer);
    } catch (const world_error& e) {
      note({peer_event_kind::peer_lost, edge, own.peer, epoch, e.failure().text()});
      throw;
    }
  };
  co_await keep(*runtime_, *keys_, {.name = own.name, .rank = own.rank, .size = own.size},
                in_world, after_close::form_again);
}

void role_core::note(peer_event what) {
  peer_events_.push_back(std::move(what));
  if (peer_events_.size() > most_peer_events) peer_events_.pop_front();
  has_peer_events_.set();
}

task<peer_event> role_core::next_peer_event() {
  while (peer_events_.empty()) {
    has_peer_events_.reset();
    co_await has_peer_events_;
  }
  peer_event next = std::move(peer_events_.front());
  peer_events_.pop_front();
  co_return next;
}

}  // namespace manyworlds::inline v0::detail
