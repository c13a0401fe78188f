// Jobs in virtual time, by seed: agents of several nodes, killed, stopped, cut off and
// told to go at any step (L71).
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/launch/launch_agent.hpp"
#include "simulation/seeds.hpp"
#include "simulation/simulated_election.hpp"

using namespace manyworlds_tests;

namespace {

struct node_agent;

/// One process of a rank, as it says what it was given.
struct holder {
  node_agent* node = nullptr;
  int rank = 0;
  int size = 0;
  int attempt = 0;
  int incarnation = 0;
  std::string store;
};

/// The agent of one node.
struct node_agent {
  member_process* process = nullptr;
  std::unique_ptr<mw::launch_agent> agent;
  std::optional<mw::launch_result> end;
  std::string error;
  /// It was stopped or cut off: the others may take it for lost while it lives.
  bool was_away = false;
  bool was_told_to_end = false;
  bool had_workers = false;

  [[nodiscard]] bool is_alive() const { return process->is_alive() && !end; }
};

/// What the workers of a job do.
struct work {
  mw::duration takes = 3s;
  /// The ranks of the first attempt that fail by themselves.
  std::set<int> fails = {};
};

class simulated_job {
 public:
  simulated_job(std::uint64_t seed, std::size_t least, std::size_t most,
                mw::restart_scope scope, std::size_t restarts)
      : all(seed), election(all) {
    options.program = "worker";
    options.run_id = "job";
    options.scope = scope;
    options.max_restarts = restarts;
    options.max_restarts_per_rank = 10;
    options.grace = 1s;
    options.meeting.backend = "simulated";
    options.meeting.insecure = true;
    options.meeting.limits.min_nodes = least;
    options.meeting.limits.max_nodes = most;
    options.meeting.limits.last_call = 300ms;
    options.meeting.limits.join = 60s;
  }
  ~simulated_job() {
    for (node_agent& each : nodes) {
      if (each.process->is_alive()) all.kill(*each.process);
    }
    all.close();
  }

  node_agent& add() {
    const std::string name = "node" + std::to_string(nodes.size() + 1);
    node_agent& added = nodes.emplace_back();
    added.process = &all.add(name);
    added.process->process().add_program(
        "worker", [this, &added](mw::simulated_program& self) -> mw::task<int> {
          return live(added, self);
        });
    mw::register_rendezvous_backend(
        "simulated", [this, &added](mw::runtime&, const mw::rendezvous_options&) {
          return election.backend_of(*added.process);
        });
    const std::string address = added.process->process().address(1).text();
    options.host = address.substr(0, address.rfind(':'));
    options.told = [this, name](std::string_view line) {
      said.push_back(name + ": " + std::string(line));
    };
    added.agent = std::make_unique<mw::launch_agent>(added.process->runtime(), options);
    added.process->start(run(added));
    return added;
  }
  void add(std::size_t count) {
    first_nodes = count;
    for (std::size_t i = 0; i < count; ++i) add();
  }

  [[nodiscard]] node_agent* some_living(std::uint64_t number) {
    std::vector<node_agent*> alive;
    for (node_agent& each : nodes) {
      if (each.is_alive()) alive.push_back(&each);
    }
    return alive.empty() ? nullptr : alive[number % alive.size()];
  }
  /// Returns the node that holds a rank, and was never away.
  [[nodiscard]] node_agent& holder_of(int rank) const {
    const auto found = std::find_if(living.begin(), living.end(), [&](const holder* h) {
      return h->rank == rank && !h->node->was_away;
    });
    REQUIRE(found != living.end());
    return *(*found)->node;
  }
  [[nodiscard]] bool has_ended() const {
    return std::none_of(nodes.begin(), nodes.end(),
                        [](const node_agent& n) { return n.is_alive(); });
  }
  [[nodiscard]] bool stands(int size, int attempt) const {
    std::set<int> ranks;
    for (const holder* each : living) {
      if (each->attempt == attempt && each->size == size) ranks.insert(each->rank);
    }
    return ranks.size() == static_cast<std::size_t>(size) &&
           living.size() == ranks.size();
  }
  [[nodiscard]] std::string story() const {
    std::string text;
    for (const std::string& line : said) text += line + "\n";
    for (const std::string& line : wrong) text += "WRONG " + line + "\n";
    for (const node_agent& n : nodes) {
      text += n.process->name() + (n.process->is_alive() ? "" : " killed") +
              (n.end ? n.end->is_success ? " success " : " failure " + n.end->cause
                     : " runs") +
              n.error + "\n";
    }
    return text;
  }
  /// Restarts that the starts of workers add up to, where each node has one worker.
  [[nodiscard]] std::size_t restarts_seen() const {
    std::size_t replaced = 0;
    std::set<int> attempts;
    for (const auto& [place, incarnation] : highest) {
      replaced += static_cast<std::size_t>(incarnation - 1);
      attempts.insert(place.first);
    }
    return replaced + attempts.size() - (attempts.empty() ? 0 : 1);
  }

  cluster all;
  simulated_election election;
  mw::launch_options options;
  work does;
  std::deque<node_agent> nodes;
  std::size_t first_nodes = 0;
  std::vector<std::string> said;
  std::vector<std::string> wrong;
  std::set<const holder*> living;
  /// The highest incarnation of each rank of an attempt, and those that exited with 0.
  std::map<std::pair<int, int>, int> highest;
  std::set<std::pair<int, int>> succeeded;
  /// The processes of each store, by rank and incarnation.
  std::set<std::tuple<std::string, int, int>> started;

 private:
  mw::task<void> run(node_agent& n) {
    try {
      n.end = co_await n.agent->run();
    } catch (const std::exception& e) {
      n.error = e.what();
      n.end.emplace();
    }
  }

  mw::task<int> live(node_agent& on, mw::simulated_program& self) {
    struct registration {
      registration(simulated_job& j, holder h) : job(j), what(std::move(h)) {
        job.note_start(what);
      }
      ~registration() { job.living.erase(&what); }
      simulated_job& job;
      const holder what;
    };
    const auto number = [&](const char* name) {
      return std::stoi(std::string(self.variable(name).value()));
    };
    const registration here(
        *this, {&on, number("RANK"), number("WORLD_SIZE"), number("MANYWORLDS_ATTEMPT"),
                number("MANYWORLDS_INCARNATION"),
                std::string(self.variable("MASTER_ADDR").value()) + ":" +
                    std::string(self.variable("MASTER_PORT").value())});
    const holder& me = here.what;
    if (me.attempt == 0 && me.incarnation == 1 && does.fails.contains(me.rank)) {
      co_await mw::sleep_for(does.takes / 2);
      co_return 7;
    }
    auto ends_when_told = [&self]() -> mw::task<void> {
      co_await self.terminated();
      co_await mw::sleep_for(400ms);
    };
    bool is_done = false;
    auto works = [&]() -> mw::task<void> {
      co_await mw::sleep_for(does.takes);
      is_done = true;
    };
    co_await mw::when_any(works(), ends_when_told());
    if (!is_done) co_return 1;
    succeeded.insert({me.attempt, me.rank});
    co_return 0;
  }

  void note_start(const holder& h) {
    for (const holder* other : living) {
      const bool can_clash = !other->node->was_away && !h.node->was_away;
      if (can_clash && other->rank == h.rank)
        wrong.push_back("L-a: rank " + std::to_string(h.rank) + " is held twice");
      if (can_clash && other->attempt != h.attempt)
        wrong.push_back("L-a: two attempts run at the same time");
      // Where all nodes of a round were taken for lost, no other knows their attempts.
      if (can_clash && other->attempt == h.attempt && other->size != h.size)
        wrong.push_back("workers of one attempt differ on its size");
      if (can_clash && other->attempt == h.attempt && other->store != h.store)
        wrong.push_back("workers of one attempt differ on its store");
    }
    h.node->had_workers = true;
    int& known = highest[{h.attempt, h.rank}];
    known = std::max(known, h.incarnation);
    const bool is_first = started.insert({h.store, h.rank, h.incarnation}).second;
    if (!is_first)
      wrong.push_back("an incarnation of rank " + std::to_string(h.rank) +
                      " starts twice");
    living.insert(&h);
  }
};

/// What is done to a job at one step.
void do_harm(simulated_job& job, std::uint64_t seed, bool may_pause) {
  node_agent* const one = job.some_living(seed / 7);
  if (!one) return;
  switch (seed % (may_pause ? 6 : 4)) {
    case 0:
      job.all.kill(*one->process);
      break;
    case 1:
    case 2: {
      const auto programs = one->process->process().programs();
      if (!programs.empty()) one->process->process().signal_program(programs[0], SIGSEGV);
      break;
    }
    case 3:
      one->was_told_to_end = true;
      one->agent->end(SIGTERM);
      break;
    case 4:
      one->was_away = true;
      job.all.sim.stop(one->process->process());
      break;
    default:
      if (node_agent* const other = job.some_living(seed / 7 + 1); other != one) {
        one->was_away = other->was_away = true;
        job.all.cut(*one->process, *other->process);
      }
  }
}

/// What holds when all has ended.
void check(simulated_job& job) {
  INFO(job.story());
  CHECK(job.wrong.empty());
  CHECK(job.living.empty());
  std::size_t drained = 0;
  std::size_t came_back = 0;
  int last = 0;
  for (const auto& [place, incarnation] : job.highest) last = std::max(last, place.first);
  for (const node_agent& n : job.nodes) {
    CHECK(n.error.empty());
    drained += n.was_told_to_end ? 1 : 0;
    came_back += n.was_away ? 1 : 0;
    if (!n.end) continue;
    CHECK(n.end->restarts <= job.options.max_restarts);
    // A spare that is not needed any longer has succeeded, too.
    if (!n.had_workers) continue;
    // A job has succeeded when all ranks of its last attempt have.
    const bool has_succeeded =
        std::all_of(job.highest.begin(), job.highest.end(), [&](const auto& each) {
          return each.first.first != last || job.succeeded.contains(each.first);
        });
    if (n.end->is_success) CHECK(has_succeeded);
    if (n.was_told_to_end) CHECK(!n.end->is_success);
    const bool is_undisturbed =
        std::none_of(job.nodes.begin(), job.nodes.end(), [](const node_agent& each) {
          return each.was_told_to_end || each.was_away || !each.process->is_alive();
        });
    if (has_succeeded && is_undisturbed) CHECK(n.end->is_success);
  }
  // Each restart was counted: a node that drains, or comes, is none (rule L-b).
  const std::size_t in_first =
      std::min(job.first_nodes, job.options.meeting.limits.max_nodes);
  const std::size_t free = drained + came_back + job.nodes.size() - in_first;
  CHECK(job.restarts_seen() <= job.options.max_restarts + free);
}

}  // namespace

TEST_SUITE_BEGIN("simulation");

TEST_CASE("L71: agents that are left alone run one attempt and all succeed") {
  for (const std::size_t count : {1u, 2u, 5u, 64u}) {
    CAPTURE(count);
    simulated_job job(count, count, count, mw::restart_scope::group, 0);
    job.add(count);
    REQUIRE_MESSAGE(job.all.run_until([&] { return job.has_ended(); }, 60s), job.story());
    for (const node_agent& n : job.nodes) CHECK(n.end->is_success);
    CHECK(job.succeeded.size() == count);
    CHECK(job.restarts_seen() == 0);
    check(job);
  }
}

TEST_CASE("L71: a worker that fails is a restart of all, counted once") {
  simulated_job job(3, 4, 4, mw::restart_scope::group, 1);
  job.does.fails = {1, 2};
  job.add(4);
  REQUIRE_MESSAGE(job.all.run_until([&] { return job.has_ended(); }, 60s), job.story());
  for (const node_agent& n : job.nodes) CHECK(n.end->restarts == 1);
  CHECK(job.restarts_seen() == 1);
  for (const node_agent& n : job.nodes) CHECK(n.end->is_success);
  check(job);
}

TEST_CASE(
    "L71: a worker that fails again and again ends the job when no restart is left") {
  simulated_job job(5, 3, 3, mw::restart_scope::worker, 2);
  job.add(3);
  const auto is_over = [&] {
    // The rank's process is killed each time that it runs.
    const bool runs = std::any_of(job.living.begin(), job.living.end(),
                                  [&](auto* h) { return h->node == &job.nodes[1]; });
    mw::simulated_process& process = job.nodes[1].process->process();
    const std::vector<pid_t> programs = process.programs();
    if (runs && !programs.empty()) process.signal_program(programs[0], SIGSEGV);
    return job.has_ended();
  };
  REQUIRE_MESSAGE(job.all.run_until(is_over, 60s), job.story());
  CHECK(job.restarts_seen() == 2);
  for (const node_agent& n : job.nodes) {
    CHECK(!n.end->is_success);
    REQUIRE(n.end->failures.size() == 1);
    CHECK(n.end->failures[0].reason.signal == SIGSEGV);
  }
  check(job);
}

TEST_CASE(
    "L71: nodes that are lost again and again end the job when no restart is left") {
  simulated_job job(6, 3, 3, mw::restart_scope::group, 2);
  job.does.takes = 30s;
  job.add(9);
  for (int killed = 0; killed < 3; ++killed) {
    CAPTURE(killed);
    REQUIRE_MESSAGE(job.all.run_until([&] { return job.living.size() == 3; }, 20s),
                    job.story());
    job.all.kill(*(*job.living.begin())->node->process);
    REQUIRE(job.all.run_until([&] { return job.living.size() < 3; }, 20s));
  }
  REQUIRE_MESSAGE(job.all.run_until([&] { return job.has_ended(); }, 60s), job.story());
  CHECK(job.restarts_seen() == 2);
  check(job);
}

TEST_CASE(
    "L64: a node that was taken for lost gets the ranks of the one that came for it") {
  simulated_job job(7, 2, 2, mw::restart_scope::worker, 5);
  job.does.takes = 40s;
  job.add(3);
  REQUIRE(job.all.run_until([&] { return job.living.size() == 2; }, 20s));
  node_agent& away = job.holder_of(1);
  away.was_away = true;
  job.all.sim.stop(away.process->process());
  REQUIRE(job.all.run_until([&] { return job.living.size() == 3; }, 20s));
  job.all.sim.resume(away.process->process());
  REQUIRE(job.all.run_until([&] { return job.living.size() == 2; }, 20s));
  // It waits for a place, as any spare.
  CHECK(away.process->runtime().dump().find("workers are ended") == std::string::npos);
  node_agent& spare = job.holder_of(1);
  REQUIRE(&spare != &away);
  job.all.kill(*spare.process);
  REQUIRE_MESSAGE(job.all.run_until([&] { return job.has_ended(); }, 120s), job.story());
  CHECK(away.end->is_success);
  check(job);
}

TEST_CASE("L-d: a node that was taken for lost does not close the run of the others") {
  simulated_job job(8, 1, 3, mw::restart_scope::group, 0);
  job.does.takes = 20s;
  job.add(3);
  REQUIRE(job.all.run_until([&] { return job.living.size() == 3; }, 20s));
  node_agent& stays = job.holder_of(0);
  node_agent& drains = job.holder_of(1);
  node_agent& away = job.holder_of(2);
  away.was_away = true;
  job.all.sim.stop(away.process->process());
  drains.was_told_to_end = true;
  drains.agent->end(SIGTERM);
  const auto is_alone = [&] {
    return std::any_of(job.living.begin(), job.living.end(),
                       [](const holder* h) { return h->size == 1; });
  };
  REQUIRE_MESSAGE(job.all.run_until(is_alone, 20s), job.story());
  job.all.sim.resume(away.process->process());
  REQUIRE_MESSAGE(job.all.run_until([&] { return job.has_ended(); }, 60s), job.story());
  INFO(job.story());
  CHECK(stays.end->is_success);
  check(job);
}

TEST_CASE(
    "L60: a node that comes late counts no restarts that are older than the window") {
  simulated_job job(10, 2, 4, mw::restart_scope::group, 1);
  job.options.restart_window = 5s;
  job.does.takes = 40s;
  job.does.fails = {1};
  job.add(3);
  REQUIRE_MESSAGE(job.all.run_until([&] { return job.stands(3, 1); }, 30s), job.story());
  const mw::time_point later = job.all.sim.now() + 6s;
  REQUIRE(job.all.run_until([&] { return job.all.sim.now() > later; }, 7s));
  job.add();
  REQUIRE_MESSAGE(job.all.run_until([&] { return job.living.size() == 4; }, 30s),
                  job.story());
  job.all.kill(*job.holder_of(1).process);
  REQUIRE_MESSAGE(job.all.run_until([&] { return job.has_ended(); }, 120s), job.story());
  INFO(job.story());
  for (const node_agent& n : job.nodes) {
    if (n.end) CHECK(n.end->is_success);
  }
  for (const std::string& line : job.said)
    CHECK(line.find("node4: all 4") == std::string::npos);
  CHECK(job.wrong.empty());
}

TEST_CASE("L63: an attempt that ends does not go on in the next round") {
  simulated_job job(9, 2, 2, mw::restart_scope::worker, 5);
  job.options.max_restarts_per_rank = 0;
  job.does.fails = {1};
  job.add(3);
  const auto has_failed = [&] {
    return std::any_of(job.said.begin(), job.said.end(), [](const std::string& line) {
      return line.find("all workers are ended") != std::string::npos;
    });
  };
  REQUIRE(job.all.run_until([&] { return job.living.size() == 2; }, 20s));
  node_agent& failing = job.holder_of(1);
  REQUIRE(job.all.run_until(has_failed, 20s));
  job.all.kill(*failing.process);
  REQUIRE_MESSAGE(job.all.run_until([&] { return job.has_ended(); }, 60s), job.story());
  INFO(job.story());
  CHECK(job.highest.at({0, 1}) == 1);
  for (const node_agent& n : job.nodes) {
    if (n.end) CHECK(n.end->restarts == 1);
  }
  check(job);
}

TEST_CASE("L71: nodes that are away and come back leave no law broken") {
  constexpr std::uint64_t harms = 6;
  for (std::uint64_t seed = 1; seed <= seed_count(400) / 10 + 1; ++seed) {
    CAPTURE(seed);
    const bool is_alone = seed % 2 == 0;
    simulated_job job(seed, 1 + seed % 2, 3,
                      is_alone ? mw::restart_scope::worker : mw::restart_scope::group,
                      30);
    job.does.takes = 15s;
    job.add(4 + seed % 2);
    std::uint64_t done = 0;
    mw::time_point next = job.all.sim.now() + 1s;
    std::map<node_agent*, mw::time_point> away;
    const auto is_over = [&] {
      const mw::time_point now = job.all.sim.now();
      for (node_agent& n : job.nodes) {
        if (!away.contains(&n) || now < away[&n]) continue;
        away.erase(&n);
        if (n.process->is_alive()) job.all.sim.resume(n.process->process());
      }
      if (done == harms) return away.empty() && job.has_ended();
      if (now < next) return false;
      std::uint64_t drawn = seed * 7919 + done++ * 104729;
      drawn ^= drawn >> 7;
      next = now + std::chrono::milliseconds(drawn % 4001);
      node_agent* const one = job.some_living(drawn / 16);
      if (!one) return false;
      const std::vector<pid_t> programs = one->process->process().programs();
      if (drawn % 5 == 0 && done % 2 == 0) {
        job.all.kill(*one->process);
      } else if (drawn % 5 == 1 && !programs.empty()) {
        one->process->process().signal_program(programs[0], SIGSEGV);
      } else if (!away.contains(one)) {
        one->was_away = true;
        job.all.sim.stop(one->process->process());
        away[one] = now + 4s + std::chrono::milliseconds(drawn / 32 % 5000);
      }
      return false;
    };
    REQUIRE_MESSAGE(job.all.run_until(is_over, 400s),
                    (job.story() + job.all.sim.describe()));
    check(job);
  }
}

TEST_CASE("L71: kills, pauses, cuts and signals at any step leave no law broken") {
  for (std::uint64_t seed = 1; seed <= seed_count(400) / 4 + 1; ++seed) {
    CAPTURE(seed);
    const bool is_alone = seed % 2 == 0;
    simulated_job job(seed, 1 + seed % 3, 4,
                      is_alone ? mw::restart_scope::worker : mw::restart_scope::group,
                      seed % 4);
    if (seed % 5 == 0) job.does.fails = {static_cast<int>(seed % 4)};
    job.add(4 + seed % 3);
    const std::uint64_t first = 13 * (seed % 457);
    for (std::uint64_t i = 0; i < 1 + seed % 5; ++i) {
      const std::uint64_t what = seed * 31 + i * 17;
      job.all.sim.at_step(first + i * (seed % 307),
                          [&job, what, i] { do_harm(job, what, i == 0); });
    }
    job.all.sim.at_step(first + 3000, [&] { job.add(); });
    // What was stopped goes on at last.
    const auto is_over = [&] {
      const bool is_late = job.all.sim.now() > mw::time_point{} + 12s;
      for (node_agent& n : job.nodes) {
        const bool is_stopped =
            n.process->process().state() == mw::process_state::stopped;
        if (is_late && is_stopped) job.all.sim.resume(n.process->process());
      }
      return job.all.sim.steps() > first + 3000 && is_late && job.has_ended();
    };
    REQUIRE_MESSAGE(job.all.run_until(is_over, 200s),
                    (job.story() + job.all.sim.describe()));
    check(job);
  }
}

TEST_SUITE_END();
