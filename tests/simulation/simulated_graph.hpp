// Simulated graph: a job of roles in virtual time, with the product's master and agents.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/testing/simulated_program.hpp"
#include "mpmd/context_store.hpp"
#include "mpmd/job_agent.hpp"
#include "mpmd/job_master.hpp"
#include "simulation/world_cluster.hpp"

namespace manyworlds_tests {

/// What masters have recorded, outside of all processes.
struct recorded_context {
  std::uint64_t term = 0;
  mw::time_point term_since{};
  mw::detail::context_values rows;
  std::size_t writes = 0;
  /// When it was recorded that the job ends.
  std::optional<mw::time_point> ends_since = {};

  [[nodiscard]] bool says_that_job_ends() const {
    const auto row = rows.find("job");
    return row != rows.end() && (row->second.find("\"stopping\"") != std::string::npos ||
                                 row->second.find("\"stopped\"") != std::string::npos);
  }
  /// Is asked twice for each write, by its number from 1: ahead of its effect, and behind
  /// it. If it says yes, it has killed the master that writes.
  std::function<bool(std::size_t write, bool has_effect)> kills = {};
  /// Is asked as `kills` is. What it has frozen meanwhile goes on when it is thawed.
  std::function<void(std::size_t write, bool has_effect)> freezes = {};
  /// Is awaited by each write.
  std::function<mw::task<void>()> until_written = {};
};

/// One master's way to it. Each operation takes a while, in which the master may die.
class simulated_context final : public mw::detail::context_store {
 public:
  /// While `is_cut` its store does not answer.
  simulated_context(recorded_context& kept, mw::simulation& sim,
                    std::shared_ptr<const bool> is_cut = {})
      : kept_(kept), sim_(sim), is_cut_(std::move(is_cut)) {}

  /// Returns how many of its writes came too late, since another master has the term.
  [[nodiscard]] std::size_t refusals() const { return refusals_; }
  /// Returns the last term that it took; 0 if it has taken none.
  [[nodiscard]] std::uint64_t own_term() const { return own_term_; }

  mw::task<std::uint64_t> term() override {
    co_await on_its_way();
    co_return kept_.term;
  }
  mw::task<std::uint64_t> take_term(std::uint64_t seen) override {
    co_await on_its_way();
    if (kept_.term != seen) refuse();
    own_term_ = ++kept_.term;
    kept_.term_since = sim_.now();
    co_return own_term_;
  }
  mw::task<mw::detail::context_values> load() override {
    co_await on_its_way();
    co_return kept_.rows;
  }
  mw::task<void> write(std::uint64_t term,
                       std::vector<mw::detail::context_write> changes) override {
    co_await on_its_way();
    if (kept_.until_written) co_await kept_.until_written();
    if (term != kept_.term) refuse();
    const std::size_t number = ++kept_.writes;
    const bool dies_before = kept_.kills && kept_.kills(number, false);
    if (dies_before) co_await never_.wait();
    if (kept_.freezes) {
      kept_.freezes(number, false);
      co_await on_its_way();
      if (term != kept_.term) refuse();
    }
    for (auto& [key, value] : changes) {
      if (value)
        kept_.rows.insert_or_assign(key, *value);
      else
        kept_.rows.erase(key);
    }
    if (!kept_.ends_since && kept_.says_that_job_ends()) kept_.ends_since = sim_.now();
    const bool dies_behind = kept_.kills && kept_.kills(number, true);
    if (dies_behind) co_await never_.wait();
    if (kept_.freezes) kept_.freezes(number, true);
    co_await on_its_way();
  }
  [[nodiscard]] std::string where() const override { return "memory"; }

 private:
  [[noreturn]] void refuse() {
    ++refusals_;
    throw mw::detail::context_error(mw::detail::context_trouble::deposed,
                                    "another master has a higher term");
  }
  mw::task<void> on_its_way() {
    co_await mw::sleep_for(sim_.random().at_most(2ms));
    if (is_cut_ && *is_cut_)
      throw mw::detail::context_error(mw::detail::context_trouble::unreachable,
                                      "the context does not answer");
  }

  recorded_context& kept_;
  mw::simulation& sim_;
  const std::shared_ptr<const bool> is_cut_;
  std::size_t refusals_ = 0;
  std::uint64_t own_term_ = 0;
  mw::event never_;
};

/// One incarnation, from its start to its end.
struct simulated_incarnation {
  mw::instance_id instance;
  std::uint64_t number = 0;
  std::string node;
  pid_t pid = 0;
  mw::simulated_process* of = nullptr;  ///< the agent's
  bool is_alive = true;
};

class simulated_graph {
 public:
  simulated_graph(std::uint64_t seed, mw::job_graph graph,
                  mw::simulation_options network = {})
      : all(seed, network), graph_(std::move(graph)) {
    limits.limits.nodes = 0;
    limits.clock = [this] {
      return std::chrono::duration_cast<std::chrono::milliseconds>(all.sim.elapsed())
                 .count() +
             1'000'000;
    };
  }
  ~simulated_graph() { close(); }
  /// Ends all processes: ahead of what they use.
  void close() {
    for (member_process* each : processes_)
      if (each->is_alive()) all.kill(*each);
    all.close();
  }

  void add_node(const std::string& name) {
    ++limits.limits.nodes;
    start_agent(name);
  }
  void start_agent(const std::string& name) {
    member_process& process = added(name);
    node& own = nodes_[name];
    own.process = &process;
    process.process().add_program("program",
                                  [this, name, &process](mw::simulated_program& self) {
                                    return live(name, process, self);
                                  });
    mw::node_resources has;
    has.name = name;
    has.cpus = {{0, {0, 1, 2, 3}}};
    has.memory = std::uint64_t{1} << 33U;
    mw::detail::agent_place place;
    place.job = graph_.name();
    place.node = name;
    place.store = "127.0.0.1:1";
    process.start(run_agent(
        std::make_unique<mw::detail::job_agent>(process.runtime(), *process.rendezvous,
                                                std::move(has), std::move(place)),
        own, process));
  }
  void kill_agent(const std::string& name) {
    node& own = nodes_[name];
    if (own.process == nullptr || !own.process->is_alive()) return;
    all.kill(*own.process);
    for (simulated_incarnation& each : incarnations)
      if (each.of == &own.process->process()) is_over(each);
    own.process = nullptr;
  }
  member_process* agent(const std::string& name) { return nodes_[name].process; }
  template <class Each>
  void for_each_agent(Each&& each) {
    for (auto& [name, own] : nodes_)
      if (own.process != nullptr) each(name, *own.process);
  }

  void start_master() {
    master_process = &added("master");
    contexts_.push_back(std::make_unique<simulated_context>(kept, all.sim));
    master_process->start(run_master(std::make_unique<mw::detail::job_master>(
        master_process->runtime(), *master_process->rendezvous, *contexts_.back(), graph_,
        graph_.name(), limits)));
  }
  void kill_master() {
    if (master_process != nullptr && master_process->is_alive())
      all.kill(*master_process);
    master_process = nullptr;
  }
  /// The master stands still for that long. As after its death another one is started
  /// meanwhile, since the old one seems to be gone.
  void freeze_master(mw::duration span) {
    if (master_process != nullptr) all.stop(*master_process, span);
    master_process = nullptr;
  }
  /// Adds a process that dies with the graph.
  member_process& added(const std::string& name) {
    member_process& process = all.add(name + "#" + std::to_string(processes_.size() + 1));
    processes_.push_back(&process);
    return process;
  }
  [[nodiscard]] const mw::job_graph& graph() const { return graph_; }

  /// Ends a program by a signal, as an accident does.
  bool kill_program(const mw::instance_id& id) {
    for (auto each = incarnations.rbegin(); each != incarnations.rend(); ++each) {
      if (!each->is_alive || !(each->instance == id)) continue;
      each->of->signal_program(each->pid, SIGKILL);
      is_over(*each);
      return true;
    }
    return false;
  }

  [[nodiscard]] std::size_t living() const { return living_; }
  [[nodiscard]] std::size_t starts_of(const mw::instance_id& id) const {
    return static_cast<std::size_t>(
        std::count_if(incarnations.begin(), incarnations.end(),
                      [&](const simulated_incarnation& i) { return i.instance == id; }));
  }
  /// Waits until that number live, all of them the newest.
  [[nodiscard]] bool settles(std::size_t count, mw::duration limit) {
    std::size_t calm = 0;
    return all.run_until(
        [&] {
          calm = living() == count ? calm + 1 : 0;
          return calm > 2000;
        },
        limit);
  }
  /// Runs until `holds`, with another master 100 ms after each death of one.
  template <class Condition>
  [[nodiscard]] bool leads_on_until(Condition&& holds, mw::duration limit) {
    const mw::time_point end = all.sim.now() + limit;
    while (!holds()) {
      if (all.sim.now() >= end) return false;
      all.run_for(100ms);
      if (master_process == nullptr && !exit_code) start_master();
    }
    return true;
  }
  /// Waits until that number has lived for a while, all recorded to run.
  [[nodiscard]] bool is_whole(std::size_t count, mw::duration limit) {
    int calm = 0;
    const auto holds = [&] {
      calm = living() == count && recorded_to_run() == count ? calm + 1 : 0;
      return calm > 3;
    };
    return leads_on_until(holds, limit);
  }
  /// Returns how many masters have ended since another has a higher term.
  [[nodiscard]] std::size_t deposed_masters() const {
    return static_cast<std::size_t>(std::count(
        said.begin(), said.end(), "a master ends: another master has a higher term"));
  }
  [[nodiscard]] std::size_t recorded_to_run() const {
    return static_cast<std::size_t>(
        std::count_if(kept.rows.begin(), kept.rows.end(), [](const auto& row) {
          return row.first.starts_with("instance/") &&
                 row.second.find("\"phase\":\"running\"") != std::string::npos;
        }));
  }
  /// Returns how many agents go on.
  [[nodiscard]] std::size_t agents_left() const {
    return static_cast<std::size_t>(
        std::count_if(nodes_.begin(), nodes_.end(), [](const auto& each) {
          return each.second.process != nullptr && !each.second.has_ended;
        }));
  }
  /// Asks the job to end, as its user does.
  void ask_to_stop() {
    member_process& user = added("user");
    user.start(tell_to_stop(user));
  }
  [[nodiscard]] mw::detail::job_context recorded() const {
    return mw::detail::job_context(kept.rows);
  }
  /// Returns what is recorded of the job and its instances, without what depends on when
  /// and where it was.
  [[nodiscard]] std::string end_text() const {
    const mw::detail::job_context job = recorded();
    std::string text = std::string(name_of(job.job().stage)) + ", exit code " +
                       std::to_string(job.job().exit_code) + ", restarts " +
                       std::to_string(job.job().restart_count) + ": " + job.job().why +
                       "\n";
    for (std::size_t n = 0; n < job.size(); ++n)
      text += job.id(n).text() + " " + std::string(name_of(job.at(n).phase)) + "\n";
    return text;
  }
  [[nodiscard]] std::string story() const {
    std::string text;
    for (const simulated_incarnation& each : incarnations)
      text += each.instance.text() + " " + std::to_string(each.number) + " on " +
              each.node + (each.is_alive ? " lives\n" : " is over\n");
    for (const std::string& line : said) text += line + "\n";
    return text + all.last_lines();
  }

  cluster all;
  recorded_context kept;
  mw::detail::master_options limits;
  std::deque<simulated_incarnation> incarnations;
  std::vector<std::string> said;
  std::vector<std::string> wrong;
  std::optional<int> exit_code;
  /// How many masters have ended with an exit code.
  std::size_t results = 0;
  /// Whether instances of the role "driver" end, with code 0.
  bool drivers_end = false;
  /// How long others take to end when they are told to.
  mw::duration takes_to_end{};
  /// A node that was cut off for too long may have an incarnation that was replaced.
  bool may_overlap = false;
  /// Says of one incarnation whether it may live on beside a newer one. Null: none may.
  std::function<bool(const simulated_incarnation& older)> may_live_on = {};
  /// Whether what starts has to be recorded: a master of the test's own keeps no record.
  bool checks_records = true;
  member_process* master_process = nullptr;

 private:
  struct node {
    member_process* process = nullptr;
    bool has_ended = false;
  };

  // Their frames own them: a runtime outlives all that stands on it.
  mw::task<void> run_agent(std::unique_ptr<mw::detail::job_agent> agent, node& own,
                           const member_process& process) {
    try {
      co_await agent->run();
      if (own.process == &process) own.has_ended = true;
    } catch (const std::exception& e) {
      said.push_back(std::string("an agent ends: ") + e.what());
    }
  }
  mw::task<void> run_master(std::unique_ptr<mw::detail::job_master> master) {
    try {
      exit_code = co_await master->run();
      ++results;
    } catch (const std::exception& e) {
      said.push_back(std::string("a master ends: ") + e.what());
    }
  }

  mw::task<void> tell_to_stop(member_process& user) {
    mw::detail::job_meeting meeting(*user.rendezvous, graph_.name());
    co_await meeting.ask_to_stop("it is told to");
  }

  void check_start(const std::string& text, const simulated_incarnation& own) {
    ++living_;
    // Law G-a: an incarnation starts once, and the newest alone lives.
    for (const simulated_incarnation* each : by_instance_[text]) {
      if (each->number == own.number) wrong.push_back(text + " was started twice");
      const bool may_live = may_overlap || (may_live_on && may_live_on(*each));
      if (each->is_alive && !may_live)
        wrong.push_back(text + " has two incarnations that live");
    }
    by_instance_[text].push_back(&own);
    if (!checks_records) return;
    // Law G-f. An order may have been on its way to its agent as that was recorded.
    if (kept.ends_since && all.sim.now() - *kept.ends_since > 20ms)
      wrong.push_back(text + " was started though the job ends");
    // Law G-b: what starts is recorded.
    const auto row = kept.rows.find("instance/" + text);
    const std::string number = "\"incarnation\":" + std::to_string(own.number) + ",";
    if (row == kept.rows.end() || row->second.find(number) == std::string::npos)
      wrong.push_back(text + " " + std::to_string(own.number) +
                      " starts, and it is not recorded: " +
                      (row == kept.rows.end() ? "no row" : row->second));
  }

  mw::task<int> live(std::string name, member_process& agent,
                     mw::simulated_program& self) {
    const std::string text(self.variable("MANYWORLDS_INSTANCE").value_or("?.0"));
    const std::size_t dot = text.rfind('.');
    simulated_incarnation& own = incarnations.emplace_back();
    own.instance = {text.substr(0, dot),
                    static_cast<std::uint32_t>(std::stoul(text.substr(dot + 1)))};
    own.number =
        std::stoull(std::string(self.variable("MANYWORLDS_INCARNATION").value_or("0")));
    own.node = name;
    own.pid = self.pid();
    own.of = &agent.process();
    check_start(text, own);
    const struct ending {
      simulated_graph& graph;
      simulated_incarnation& of;
      ~ending() { graph.is_over(of); }
    } at_last{*this, own};
    if (own.instance.role == "driver") {
      while (!drivers_end) co_await mw::sleep_for(100ms);
    } else {
      co_await self.terminated();
      co_await mw::sleep_for(takes_to_end);
    }
    co_return 0;
  }

  void is_over(simulated_incarnation& each) {
    if (std::exchange(each.is_alive, false)) --living_;
  }

  mw::job_graph graph_;
  std::size_t living_ = 0;
  std::map<std::string, std::vector<const simulated_incarnation*>> by_instance_;
  std::map<std::string, node> nodes_;
  std::vector<member_process*> processes_;
  std::vector<std::unique_ptr<simulated_context>> contexts_;
};

}  // namespace manyworlds_tests
