#include "mpmd/job_master.hpp"

#include <fmt/format.h>

#include <chrono>
#include <stdexcept>
#include <utility>

#include "exception_text.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/serve/accept.hpp"
#include "manyworlds/store/store_error.hpp"
#include "mpmd/torch_variables.hpp"
#include "world/runtime_core.hpp"

namespace manyworlds::inline v0::detail {

using agent_wire::word_kind;

// How often it is looked whether the store answers, while an agent is away.
constexpr duration between_looks_at_store = std::chrono::seconds(1);
// How often those who ask are told how the job stands, at most.
constexpr duration between_tellings = std::chrono::milliseconds(200);
// How long an agent has to come again after its link has ended, before it counts as dead.
constexpr duration patience_with_reset = std::chrono::milliseconds(250);
// How long agents have to hear that the job is over.
constexpr duration patience_with_goodbye = std::chrono::seconds(5);

static recorded_time time_of_this_machine() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

job_master::job_master(runtime& rt, store& meeting, context_store& context,
                       std::optional<job_graph> begins, const std::string& job,
                       master_options options)
    : runtime_(rt),
      meeting_(meeting, job),
      context_(context),
      begins_(std::move(begins)),
      options_(std::move(options)),
      began_(time_of_this_machine()),
      began_steadily_(std::chrono::steady_clock::now()) {}

recorded_time job_master::now() const {
  if (options_.clock) return options_.clock();
  return began_ + std::chrono::duration_cast<std::chrono::milliseconds>(
                      std::chrono::steady_clock::now() - began_steadily_)
                      .count();
}

recorded_time job_master::time_of_day() const {
  return options_.clock ? options_.clock() : time_of_this_machine();
}

// --- a term ---------------------------------------------------------------------------

task<void> job_master::take_over() {
  // In this order: a term is taken before it is announced.
  const std::uint64_t announced = co_await meeting_.announced();
  const std::uint64_t seen = co_await context_.term();
  // Agents would not follow a lower term, and what runs would be started once more.
  if (announced > seen)
    throw context_error(
        context_trouble::damaged,
        fmt::format("{} has term {}, and term {} was announced: it is not the context of "
                    "this job, or an older copy of it",
                    context_.where(), seen, announced));
  term_ = co_await context_.take_term(seen);
  const context_values rows = co_await context_.load();
  if (rows.empty() && !begins_)
    throw std::invalid_argument(fmt::format(
        "there is no job in {}, and no graph to begin one", context_.where()));
  std::optional<job_context> job;
  if (rows.empty()) {
    job.emplace(std::move(*begins_));
    job->change_job().number = access::core(runtime_).random_word();
  } else {
    job.emplace(rows);
    if (begins_ && !(job->graph() == *begins_))
      throw std::invalid_argument(of_another_graph(*job, context_.where()));
  }
  manager_ = std::make_unique<job_manager>(std::move(*job), options_.limits, now());
  co_await record();
  co_await meeting_.announce(term_);
  // Behind that: a master before, if it lives, tells nothing any longer.
  if (!rows.empty()) co_await go_on_telling();
}

/// What has happened under the masters before is told on, where it can be had.
task<void> job_master::go_on_telling() {
  try {
    const std::optional<std::string> told = co_await meeting_.published();
    if (told) status_.go_on_from(*told, manager_->context());
  } catch (const store_error& e) {
    access::core(runtime_).log(log_level::warning, e.what());
  }
}

task<int> job_master::run() {
  co_await take_over();
  status_.note(time_of_day(), fmt::format("a master begins term {}", term_));
  const auto body = [&](scope& s) -> task<void> {
    const accept_options agents{.service = job_meeting::agents_of(term_),
                                .most = most_nodes};
    s.spawn(accept(runtime_, meeting_.keys(), agents,
                   [this](world& w) { return serve_agent(w); }));
    s.spawn(obey_stop());
    s.spawn(tell_status());
    s.spawn(watch_store());
    co_await manage();
    is_over_.set();
    co_await say_goodbye();
    s.cancel();
  };
  co_await scope::run(body);
  co_return manager_->context().job().exit_code;
}

/// Heard, concluded, recorded, done: in this order, whatever happens in between.
task<void> job_master::manage() {
  for (;;) {
    wake_.reset();
    recorded_.reset();
    if (stop_asked_) manager_->stop(*std::exchange(stop_asked_, std::nullopt));
    manager_->decide(now());
    status_.note_changes(*manager_, time_of_day());
    auto told = std::exchange(after_write_, {});
    co_await record();
    recorded_.set();
    if (std::exchange(wants_text_, false)) {
      make_text();
      has_text_.set();
    }
    for (auto& [node, word] : told) tell(node, std::move(word));
    carry_out(manager_->orders());
    has_news_.set();
    if (is_deposed_)
      throw context_error(context_trouble::deposed,
                          "an agent has a master of a higher term");
    if (manager_->is_over()) co_return;
    if (wake_.is_set()) continue;
    const auto due = manager_->next_due(now());
    auto heard = [&]() -> task<void> { co_await wake_; };
    if (!due) {
      co_await heard();
      continue;
    }
    try {
      co_await within(heard(), std::chrono::milliseconds(*due - now()));
    } catch (const timed_out&) {
      // It is time to decide, though nothing was heard.
    }
  }
}

/// Writes what has changed, in as many transactions as a store needs.
task<void> job_master::record() {
  std::vector<context_write> changes = manager_->context().take_changes();
  auto next = changes.begin();
  while (next != changes.end()) {
    std::vector<context_write> some;
    std::size_t bytes = 0;
    for (; next != changes.end() && some.size() < context_most_changes; ++next) {
      const std::size_t more = next->key.size() + next->value.value_or("").size();
      if (!some.empty() && bytes + more > context_most_bytes) break;
      bytes += more;
      some.push_back(std::move(*next));
    }
    co_await context_.write(term_, std::move(some));
  }
}

task<void> job_master::obey_stop() {
  stop_asked_ = co_await meeting_.asked_to_stop();
  wake_.set();
}

void job_master::make_text() {
  text_ = status_.text(*manager_, term_);
  is_text_last_ = manager_->is_over();
}

/// It alone tells: of two that do, the one that knows less may come last. It ends when it
/// has told that the job is over.
task<void> job_master::tell_status() {
  auto over = [this]() -> task<void> { co_await is_over_; };
  for (;;) {
    co_await has_news_;
    has_news_.reset();
    bool has_failed = false;
    // What is told has been recorded: another master would not know of the rest. One that
    // records all the time makes the text between two records.
    if (recorded_.is_set()) {
      make_text();
    } else {
      wants_text_ = true;
      co_await has_text_;
      has_text_.reset();
    }
    try {
      // One that was stopped for a while would put what it knew in its successor's place.
      const bool is_present = co_await meeting_.announced() <= term_;
      if (is_present) co_await meeting_.publish(text_);
      if (is_text_last_) break;
    } catch (const store_error&) {
      // Those who ask read what was told last.
      has_failed = true;
      has_news_.set();
    }
    // The end is told at once, and not again at once where the store does not answer.
    if (has_failed) {
      co_await sleep_for(between_tellings);
      continue;
    }
    try {
      co_await within(over(), between_tellings);
    } catch (const timed_out&) {
      // What has come meanwhile is told together.
    }
  }
  is_last_told_.set();
}

/// An agent that has lost its link finds its master again by the store: how long it may
/// be away counts only while the store answers.
task<void> job_master::watch_store() {
  for (;; co_await sleep_for(between_looks_at_store)) {
    if (!manager_->nodes().is_any_away()) continue;
    const time_point asked = runtime_.home().now();
    bool answers = true;
    try {
      static_cast<void>(co_await meeting_.announced());
    } catch (const store_error&) {
      answers = false;
    }
    const bool is_slow = runtime_.home().now() - asked > between_looks_at_store;
    if (!answers || is_slow) manager_->store_is_away(now());
  }
}

static agent_word word_of_end() {
  agent_word over;
  over.kind = word_kind::over;
  return over;
}

/// A master that takes over a job that is over tells those agents that its predecessor
/// could not; where all had heard it, there are none to wait for.
task<void> job_master::say_goodbye() {
  for (const auto& [node, link] : agents_) link->outbox.push(word_of_end());
  try {
    const auto told = [this]() -> task<void> { co_await is_last_told_; };
    co_await within(told(), patience_with_goodbye);
  } catch (const timed_out&) {
    // The context has it; those who ask hear what was told last.
    access::core(runtime_).log(log_level::warning,
                               "the store does not take that the job is over");
  }
  try {
    if (manager_->context().job().is_told) co_return;
    const auto sent = [&]() -> task<void> {
      while (!agents_.empty() || manager_->nodes().expects_any()) {
        gone_.reset();
        co_await gone_;
      }
    };
    co_await within(sent(), patience_with_goodbye);
    if (!manager_->nodes().are_all_dead()) co_return;
    manager_->context().change_job().is_told = true;
    co_await record();
  } catch (const timed_out&) {
    // Agents that do not leave hear of it when they ask for a master.
  } catch (const context_error& e) {
    // The next master waits for them again, and finds none.
    access::core(runtime_).log(log_level::warning, e.what());
  }
}

// --- agents ---------------------------------------------------------------------------

task<void> job_master::serve_agent(world& w) {
  agent_word hello = co_await receive_word(w, 1);
  if (hello.kind != word_kind::hello) {
    w.fail("an agent begins with what it is");
    co_return;
  }
  const std::string its_agent = fmt::format("the agent of node \"{}\"", hello.node.name);
  if (auto refusal = refusal_of_version(hello, its_agent, "this master")) {
    co_await send_word(w, 1, std::move(*refusal));
    co_return;
  }
  if (hello.term > term_) {
    is_deposed_ = true;
    wake_.set();
    w.fail("a master of a higher term is there");
    co_return;
  }
  const std::string node = hello.node.name;
  const auto other = agents_.find(node);
  if (other != agents_.end() && other->second->agent != hello.agent) {
    agent_word refusal;
    refusal.kind = word_kind::refusal;
    refusal.value = fmt::format("another agent serves node \"{}\"", node);
    co_await send_word(w, 1, std::move(refusal));
    co_return;
  }
  const auto link = std::make_shared<agent_link>();
  link->agent = hello.agent;
  agents_[node] = link;
  agent_word welcome;
  welcome.kind = word_kind::welcome;
  welcome.term = term_;
  welcome.graph = manager_->context().graph().to_json();
  welcome.absence = manager_->context().graph().absence;
  link->outbox.push(std::move(welcome));
  if (manager_->is_over()) link->outbox.push(word_of_end());
  status_.note(time_of_day(), fmt::format("node {}: its agent is there", node));
  manager_->node_came(hello.node, hello.agent, hello.has);
  wake_.set();
  co_await hold_agent(w, node, link);
}

/// A world that ends because the agent's process did has taken its instances with it, and
/// so has an agent that left. One that is silent may be cut off, and one of which only
/// the link has ended comes again at once, if it lives.
task<void> job_master::hold_agent(world& w, std::string node,
                                  std::shared_ptr<agent_link> link) {
  bool is_dead = true;
  bool may_live = false;
  std::string why = "has left";
  std::exception_ptr error;
  try {
    co_await when_any(read_agent(w, node, *link), link->outbox.write(w, 1));
  } catch (const world_error& e) {
    // A network may reset a link, too.
    may_live = e.cause() == cause::peer_died;
    is_dead = e.cause() == cause::closed || e.cause() == cause::abandoned ||
              e.cause() == cause::runtime_stopped;
    why = e.failure().text();
    error = std::current_exception();
  }
  const auto own = agents_.find(node);
  if (own != agents_.end() && own->second == link) {
    agents_.erase(own);
    status_.note(time_of_day(), fmt::format("node {}: its agent is gone: {}", node, why));
    manager_->node_lost(node, is_dead, now());
    wake_.set();
    gone_.set();
    if (may_live) co_await sleep_for(patience_with_reset);
    if (may_live && !agents_.contains(node)) {
      manager_->node_lost(node, true, now());
      wake_.set();
    }
  }
  if (error) std::rethrow_exception(error);
}

/// An agent that has come again tells over its new link how things are: what its old link
/// still holds is older than that, and would be taken for news.
task<void> job_master::read_agent(world& w, const std::string& node,
                                  const agent_link& own) {
  for (;;) {
    agent_word word = co_await receive_word(w, 1);
    const auto current = agents_.find(node);
    if (current == agents_.end() || current->second.get() != &own) co_return;
    if (!hear(node, std::move(word))) w.fail("an agent says what only a master does");
  }
}

bool job_master::hear(const std::string& node, agent_word word) {
  if (word.kind == word_kind::report) {
    manager_->heard(node, word.has.front());
  } else if (word.kind == word_kind::answer) {
    manager_->answered(word.about, word.incarnation, word.is_handled);
  } else if (word.kind == word_kind::lost) {
    manager_->lost_to_session(
        {word.instance, word.incarnation, word.about, word.steps, std::move(word.value)});
  } else if (word.kind == word_kind::fact) {
    hear_fact(node, std::move(word));
  } else {
    return false;
  }
  wake_.set();
  return true;
}

/// It is acknowledged when it is written. That of an earlier incarnation comes too late.
void job_master::hear_fact(const std::string& node, agent_word word) {
  job_context& job = manager_->context();
  const auto n = job.find(word.instance);
  if (!n || job.at(*n).incarnation != word.incarnation || job.at(*n).place.node != node)
    return;
  agent_word answer;
  answer.kind = word_kind::fact_recorded;
  answer.instance = word.instance;
  answer.incarnation = word.incarnation;
  answer.key = word.key;
  answer.steps = word.steps;
  if (!job.record_fact(*n, std::move(word.key), std::move(word.value)))
    answer.value =
        "an instance has at most 64 facts, and 1 MiB in all of them; a job 24 MiB";
  after_write_.emplace_back(node, std::move(answer));
}

void job_master::tell(const std::string& node, agent_word word) {
  const auto at = agents_.find(node);
  if (at != agents_.end()) at->second->outbox.push(std::move(word));
}

void job_master::carry_out(const std::vector<agent_order>& orders) {
  rank_places places(manager_->context());
  for (const agent_order& order : orders) {
    agent_word word;
    word.instance = manager_->context().id(order.instance);
    word.incarnation = order.incarnation;
    switch (order.kind) {
      case agent_order::what::ensure:
        word.kind = word_kind::ensure;
        word.spec = spec_of(order.instance, places);
        break;
      case agent_order::what::end:
        word.kind = word_kind::end;
        // What makes room for a successor is not waited for.
        word.drains =
            manager_->context().job().stage >= job_stage::stopping ||
            manager_->context().at(order.instance).phase == instance_phase::ended;
        break;
      case agent_order::what::recorded:
        word.kind = word_kind::recorded;
        break;
      case agent_order::what::ask:
        word.kind = word_kind::ask;
        word.about = manager_->context().id(order.about);
        break;
    }
    tell(order.node, std::move(word));
  }
}

start_spec job_master::spec_of(std::size_t instance, rank_places& places) const {
  const job_context& job = manager_->context();
  const graph_role& role = job.role_of(instance);
  const instance_record& record = job.at(instance);
  start_spec spec;
  spec.command = role.command;
  spec.folder = role.folder;
  spec.variables = role.variables;
  spec.variables["ROLE_NAME"] = role.name;
  spec.variables["ROLE_RANK"] = std::to_string(job.id(instance).index);
  spec.variables["ROLE_WORLD_SIZE"] = std::to_string(role.counts.start);
  // What the role sets itself wins.
  spec.variables.merge(torch_variables(job, manager_->nodes(), places, instance));
  spec.cpus = record.place.cpus;
  spec.gpus = record.place.gpus;
  spec.has_gpus_of_its_own = role.needs.gpus > 0;
  spec.waits_until_ready = role.ready == ready_when::told;
  spec.drain = role.drain_for;
  spec.grace = role.grace;
  spec.facts = job.facts(instance);
  return spec;
}

}  // namespace manyworlds::inline v0::detail
