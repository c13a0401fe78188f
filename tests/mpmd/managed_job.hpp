// Managed job: a job's manager among agents that are models, without I/O or clocks. What
// happens, and in which order, is drawn from a seed; the laws are checked at each step.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/detail/seeded_random.hpp"
#include "manyworlds/mpmd/job_graph.hpp"
#include "mpmd/job_manager.hpp"

namespace mw = manyworlds;

/// Returns how many seeds a test tries: MANYWORLDS_TEST_SEEDS, or `otherwise`.
inline std::uint64_t seeds_to_try(std::uint64_t otherwise) {
  const char* const wanted = std::getenv("MANYWORLDS_TEST_SEEDS");
  return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : otherwise;
}

/// Returns where other nodes reach that one.
inline std::string address_of_node(const std::string& name) { return "host-" + name; }

/// The model of an agent: what a `job_agent` does with the same orders.
struct model_agent {
  std::string process;  ///< empty while none runs
  bool is_connected = false;
  std::map<mw::instance_id, mw::detail::instance_report> has;
};

class managed_job {
 public:
  managed_job(mw::job_graph graph, std::vector<std::string> nodes, std::uint64_t seed = 1)
      : random_(seed), graph_(std::move(graph)) {
    limits_.nodes = nodes.size();
    for (const std::string& name : nodes) {
      mw::node_resources& node = resources_[name];
      node.name = name;
      node.address = address_of_node(name);
      node.cpus = {{0, {0, 1, 2, 3}}};
      node.memory = std::uint64_t{1} << 33U;
      start_agent(name);
    }
  }

  // --- the master ---------------------------------------------------------------------

  /// A new master takes over what was recorded.
  void start_master() {
    using mw::detail::job_context;
    job_context job = rows_.empty() ? job_context(graph_) : job_context(rows_);
    manager_ = std::make_unique<mw::detail::job_manager>(std::move(job), limits_, now_);
    for (auto& [name, agent] : agents_) agent.is_connected = false;
    for (auto& change : manager_->context().take_changes()) keep(change);
  }
  void kill_master() { manager_.reset(); }
  [[nodiscard]] bool has_master() const { return manager_ != nullptr; }
  /// Returns whether places were ever recorded.
  [[nodiscard]] bool has_begun() const { return has_begun_; }

  /// One turn of the master. It dies after that number of steps, of which each record and
  /// each order is one; nothing: it lives.
  void turn(std::optional<std::size_t> dies_after = std::nullopt) {
    connect_agents();
    if (is_stop_asked_) {
      manager_->stop("it is told to");
      has_heard_stop_ = true;
    }
    manager_->decide(now_);
    // Law G-f.
    if (manager_->is_over()) CHECK(living() == 0);
    if (while_recording) std::exchange(while_recording, nullptr)();
    auto changes = manager_->context().take_changes();
    std::size_t left = dies_after.value_or(SIZE_MAX);
    // A store may need a transaction for each.
    for (const auto& change : changes) {
      if (left-- == 0 || is_last_step()) return kill_master();
      keep(change);
    }
    if (manager_->context().job().is_placed) has_begun_ = true;
    for (const mw::detail::agent_order& order : manager_->orders()) {
      if (left-- == 0 || is_last_step()) return kill_master();
      obey(order, manager_->context());
    }
  }
  /// A master dies ahead of the step of that number, counted through all its turns.
  void die_before_step(std::size_t number) { last_step_ = number; }
  /// The job is asked to end ahead of the step of that number. Each master hears of it in
  /// its next turn, and nothing is started from then on.
  void ask_to_stop_before_step(std::size_t number) { stop_step_ = number; }
  [[nodiscard]] bool is_stop_asked() const { return is_stop_asked_; }
  /// Is called when that is asked, and sees the job as it is then.
  std::function<void()> as_stop_is_asked;
  /// Returns how many steps there were.
  [[nodiscard]] std::size_t steps() const { return steps_; }
  void let_pass(mw::detail::recorded_time ms) { now_ += ms; }
  /// Turns until nothing changes, with time for pauses in between.
  void settle(int turns = 60) {
    for (int i = 0; i < turns; ++i) {
      if (!manager_) start_master();
      turn();
      let_programs_go_on();
      let_pass(200);
    }
  }

  /// Those that are never ready.
  std::set<mw::instance_id> never_ready;
  /// What was told to end ends when programs have gone on that often, counted for all of
  /// them.
  int times_until_ended = 1;
  /// Happens in the next turn, behind the conclusions and ahead of the orders.
  std::function<void()> while_recording;

  // --- what happens to agents and programs ---------------------------------------------

  void start_agent(const std::string& node) {
    model_agent& agent = agents_[node];
    agent.process = "agent-" + std::to_string(++processes_);
    agent.is_connected = false;
    agent.has.clear();
  }
  /// Its programs die with it.
  void kill_agent(const std::string& node) {
    model_agent& agent = agents_[node];
    if (manager_ && agent.is_connected) manager_->node_lost(node, true, now_);
    for (const auto& [id, has] : agent.has)
      if (is_alive(has)) last_ends_[id] = ++processes_;
    agent = {};
  }
  /// Its link breaks, and it lives on; `heal` lets it find the master again.
  void cut_off(const std::string& node) {
    cut_.insert(node);
    agents_[node].is_connected = false;
    if (manager_) manager_->node_lost(node, false, now_);
  }
  void heal(const std::string& node) { cut_.erase(node); }
  /// What the agent tells is on its way until `arrive`.
  void delay(const std::string& node) { delayed_.insert(node); }
  void arrive(const std::string& node) {
    delayed_.erase(node);
    const model_agent& agent = agents_[node];
    for (const auto& [id, has] : agent.has) report(node, agent, has);
  }
  /// A program ends by itself. Returns false if none of that name runs.
  bool end_program(const mw::instance_id& id, int code) {
    return end_program(
        id, {mw::exit_kind::exited, code, 0, "exited with code " + std::to_string(code)});
  }
  bool end_program(const mw::instance_id& id, const mw::detail::instance_exit& exit) {
    for (auto& [name, agent] : agents_) {
      const auto at = agent.has.find(id);
      if (at == agent.has.end() || !is_alive(at->second)) continue;
      if (at->second.life == mw::detail::instance_life::ending) continue;
      at->second.life = mw::detail::instance_life::ended;
      at->second.exit = exit;
      if (!exit.is_success()) ++kills_[id];
      last_ends_[id] = ++processes_;
      report(name, agent, at->second);
      return true;
    }
    return false;
  }
  /// A program says how far it is.
  void advance(const mw::instance_id& id, std::uint64_t progress) {
    for (auto& [name, agent] : agents_) {
      const auto at = agent.has.find(id);
      if (at == agent.has.end()) continue;
      at->second.progress = progress;
      report(name, agent, at->second);
    }
  }
  /// What was started is ready a turn later, unless `is_slow`; what was told to end has
  /// ended.
  void let_programs_go_on(bool is_slow = false) {
    const bool may_end = ++times_gone_on_ % times_until_ended == 0;
    for (auto& [name, agent] : agents_) {
      for (auto& [id, has] : agent.has) {
        const auto before = has.life;
        const bool is_soon = !is_slow && !never_ready.contains(id);
        if (has.life == mw::detail::instance_life::starting && is_soon)
          has.life = mw::detail::instance_life::ready;
        if (has.life == mw::detail::instance_life::ending && may_end) {
          has.life = mw::detail::instance_life::ended;
          has.exit = {mw::exit_kind::stopped, 0, SIGTERM_number, "was stopped"};
        }
        if (has.life != before) report(name, agent, has);
      }
    }
  }

  // --- what is seen -------------------------------------------------------------------

  [[nodiscard]] mw::detail::job_manager& manager() { return *manager_; }
  [[nodiscard]] const mw::detail::job_context& context() const {
    return manager_->context();
  }
  [[nodiscard]] mw::detail::job_stage stage() const {
    return manager_->context().job().stage;
  }
  [[nodiscard]] const mw::detail::instance_record& record(
      const mw::instance_id& id) const {
    return manager_->context().at(manager_->context().find(id).value());
  }
  [[nodiscard]] std::uint64_t incarnation(const mw::instance_id& id) const {
    return record(id).incarnation;
  }
  [[nodiscard]] bool is_ready(const mw::instance_id& id) const {
    const auto n = manager_->context().find(id).value();
    const auto* const report = manager_->nodes().current(n, manager_->context().at(n));
    return report != nullptr && report->life == mw::detail::instance_life::ready;
  }
  [[nodiscard]] std::size_t living() const {
    std::size_t count = 0;
    for (const auto& [name, agent] : agents_)
      for (const auto& [id, has] : agent.has) count += is_alive(has) ? 1 : 0;
    return count;
  }
  [[nodiscard]] std::size_t starts(const mw::instance_id& id) const {
    std::size_t count = 0;
    for (const auto& [which, incarnation] : started_) count += which == id ? 1 : 0;
    return count;
  }
  [[nodiscard]] std::size_t kills(const mw::instance_id& id) const {
    const auto at = kills_.find(id);
    return at == kills_.end() ? 0 : at->second;
  }
  /// The instance that a controller was asked about last.
  [[nodiscard]] const mw::instance_id& asked() const { return asked_; }
  /// Returns whether `id` was started after the last end of `other` that was not ordered.
  [[nodiscard]] bool began_after_end_of(const mw::instance_id& id,
                                        const mw::instance_id& other) const {
    const auto n = manager_->context().find(id).value();
    const auto* const report = manager_->nodes().current(n, manager_->context().at(n));
    const auto end = last_ends_.find(other);
    return report != nullptr && (end == last_ends_.end() || report->pid > end->second);
  }
  [[nodiscard]] std::map<std::string, model_agent>& agents() { return agents_; }
  [[nodiscard]] mw::detail::seeded_random& random() { return random_; }
  [[nodiscard]] mw::detail::recorded_time now() const { return now_; }

 private:
  void keep(const mw::detail::context_write& change) {
    if (change.value)
      rows_.insert_or_assign(change.key, *change.value);
    else
      rows_.erase(change.key);
  }

  bool is_last_step() {
    if (steps_ == stop_step_) {
      is_stop_asked_ = true;
      if (as_stop_is_asked) as_stop_is_asked();
    }
    return steps_++ == last_step_;
  }

  static constexpr int SIGTERM_number = 15;

  static bool is_alive(const mw::detail::instance_report& has) {
    return has.life != mw::detail::instance_life::ended;
  }
  void report(const std::string& node, const model_agent& agent,
              const mw::detail::instance_report& what) {
    if (manager_ && agent.is_connected && !delayed_.contains(node))
      manager_->heard(node, what);
  }
  void connect_agents() {
    for (auto& [name, agent] : agents_) {
      if (agent.process.empty() || agent.is_connected || cut_.contains(name)) continue;
      agent.is_connected = true;
      std::vector<mw::detail::instance_report> has;
      for (const auto& [id, report] : agent.has) has.push_back(report);
      manager_->node_came(resources_[name], agent.process, has);
    }
  }

  void obey(const mw::detail::agent_order& order, const mw::detail::job_context& job) {
    using what = mw::detail::agent_order::what;
    model_agent& agent = agents_[order.node];
    if (agent.process.empty()) return;
    const mw::instance_id& id = job.id(order.instance);
    if (order.kind == what::ask) asked_ = job.id(order.about);
    const auto at = agent.has.find(id);
    if (order.kind == what::ensure) {
      ensure(order, id, agent);
    } else if (at == agent.has.end() || at->second.incarnation != order.incarnation) {
      return;
    } else if (order.kind == what::end && is_alive(at->second)) {
      at->second.life = mw::detail::instance_life::ending;
      report(order.node, agent, at->second);
    } else if (order.kind == what::recorded && !is_alive(at->second)) {
      agent.has.erase(at);
    }
  }

  void ensure(const mw::detail::agent_order& order, const mw::instance_id& id,
              model_agent& agent) {
    const auto at = agent.has.find(id);
    if (at != agent.has.end() && at->second.incarnation >= order.incarnation) {
      report(order.node, agent, at->second);
      return;
    }
    CHECK_FALSE_MESSAGE(has_heard_stop_, id.text(),
                        " is started behind the order to stop");
    // Law G-a: once each, and only when nothing older lives.
    const bool is_first = started_.emplace(id, order.incarnation).second;
    CHECK_MESSAGE(is_first, id.text(), " incarnation ", order.incarnation);
    for (const auto& [name, other] : agents_) {
      const auto older = other.has.find(id);
      if (older != other.has.end()) CHECK_FALSE(is_alive(older->second));
    }
    // Law G-b: what is started was recorded before.
    const auto row = rows_.find("instance/" + id.text());
    REQUIRE(row != rows_.end());
    CHECK(row->second.find("\"incarnation\":" + std::to_string(order.incarnation)) !=
          std::string::npos);
    mw::detail::instance_report& own = agent.has[id];
    own = {};
    own.instance = id;
    own.incarnation = order.incarnation;
    own.pid = ++processes_;
    report(order.node, agent, own);
  }

  mw::detail::seeded_random random_;
  mw::job_graph graph_;
  mw::detail::manager_limits limits_;
  mw::detail::context_values rows_;
  std::unique_ptr<mw::detail::job_manager> manager_;
  std::map<std::string, mw::node_resources> resources_;
  std::map<std::string, model_agent> agents_;
  std::set<std::pair<mw::instance_id, std::uint64_t>> started_;
  std::map<mw::instance_id, std::size_t> kills_;
  std::map<mw::instance_id, int> last_ends_;
  mw::detail::recorded_time now_ = 1'000'000;
  int processes_ = 0;
  std::size_t steps_ = 0;
  std::size_t last_step_ = SIZE_MAX;
  std::size_t stop_step_ = SIZE_MAX;
  int times_gone_on_ = 0;
  bool is_stop_asked_ = false;
  bool has_heard_stop_ = false;
  bool has_begun_ = false;
  std::set<std::string> cut_;
  std::set<std::string> delayed_;
  mw::instance_id asked_;
};
