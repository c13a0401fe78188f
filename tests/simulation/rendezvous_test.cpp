// Rendezvous in virtual time, by seed (R1 to R8).
#include "manyworlds/launch/rendezvous.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "manyworlds/coro/when_any.hpp"
#include "simulation/seeds.hpp"
#include "simulation/simulated_election.hpp"

using namespace manyworlds_tests;

namespace {

/// An agent that asks for a round, goes on to the next when that one is over, and notes
/// what it is told.
struct node {
  member_process* process = nullptr;
  std::unique_ptr<mw::rendezvous> meet;
  std::vector<mw::round> rounds;
  std::vector<mw::round_change> changes;
  std::optional<mw::rendezvous_error> error;
  bool grows = true;  ///< asks for the next round when another node waits
  bool must_leave = false;
  bool gives_up_leaving = false;
  bool must_close = false;
  bool has_ended = false;

  [[nodiscard]] std::uint64_t number() const {
    return rounds.empty() ? 0 : rounds.back().number;
  }
  [[nodiscard]] int place() const { return rounds.back().find(meet->id())->place; }
  [[nodiscard]] bool is_alive() const { return process->is_alive() && !has_ended; }
};

mw::task<void> take_part(node& self) {
  for (;;) {
    self.rounds.push_back(co_await self.meet->next());
    for (;;) {
      const mw::round_change change = co_await self.meet->changed();
      self.changes.push_back(change);
      if (change == mw::round_change::closed) co_return;
      if (change != mw::round_change::node_waits || self.grows) break;
    }
    // Its workers stop meanwhile.
    co_await mw::sleep_for(20ms);
  }
}

mw::task<void> do_as_told(node& self) {
  while (!self.must_leave && !self.must_close) co_await mw::sleep_for(5ms);
  if (self.must_close) {
    co_await self.meet->close();
  } else if (self.gives_up_leaving) {
    co_await mw::when_any(self.meet->leave(mw::departure::draining), mw::sleep_for(0s));
  } else {
    co_await self.meet->leave(mw::departure::draining);
  }
}

mw::task<void> live(node& self) {
  try {
    auto body = [&]() -> mw::task<void> {
      auto acting = [&]() -> mw::task<void> { co_await take_part(self); };
      auto obeying = [&]() -> mw::task<void> { co_await do_as_told(self); };
      co_await mw::when_any(acting(), obeying());
    };
    co_await self.meet->run(body);
  } catch (const mw::rendezvous_error& e) {
    self.error = e;
  }
  self.has_ended = true;
}

/// Nodes of one run, over a simulated election.
class meeting {
 public:
  meeting(std::uint64_t seed, std::size_t least, std::size_t most)
      : all(seed), election(all) {
    options.run_id = "job";
    options.limits.min_nodes = least;
    options.limits.max_nodes = most;
    options.backend = "simulated";
  }
  ~meeting() {
    for (node& each : nodes) {
      if (each.process->is_alive()) all.kill(*each.process);
    }
    all.close();
  }

  node& add(member_process* beside = nullptr) {
    const std::string name = "node" + std::to_string(nodes.size() + 1);
    node& added = nodes.emplace_back();
    added.process = beside ? &all.add(name, *beside) : &all.add(name);
    mw::register_rendezvous_backend(
        "simulated", [this, &added](mw::runtime&, const mw::rendezvous_options&) {
          return election.backend_of(*added.process);
        });
    added.meet =
        std::make_unique<mw::rendezvous>(added.process->runtime(), options,
                                         mw::node_description(added.process->name(), 2));
    added.process->start(live(added));
    return added;
  }
  void add(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) add();
  }
  /// Nodes meet at an endpoint from now on. Returns the process of its host: a node
  /// beside it can serve there.
  member_process& meet_over_tcp() {
    member_process& host = all.add("the endpoint's host");
    options.backend = "tcp";
    options.insecure = true;
    options.endpoint = host.process().address(29400).text();
    return host;
  }
  void kill(node& n) { all.kill(*n.process); }

  /// Whether all living nodes stand in one round of that many nodes.
  [[nodiscard]] bool stands(std::size_t size) const {
    std::set<std::string> rounds;
    std::size_t members = 0;
    for (const node& each : nodes) {
      if (!each.is_alive() || each.rounds.empty()) continue;
      if (!each.rounds.back().find(each.meet->id())) return false;
      rounds.insert(each.rounds.back().to_json());
      ++members;
    }
    return rounds.size() == 1 && members >= size && nodes_of_last() == size;
  }
  [[nodiscard]] std::size_t nodes_of_last() const {
    return election.written.empty() ? 0 : election.written.back().nodes.size();
  }
  [[nodiscard]] node* coordinator() {
    for (node& each : nodes) {
      if (each.is_alive() && each.meet->is_coordinator()) return &each;
    }
    return nullptr;
  }

  /// What holds for every run: rounds grow, a living node keeps its place, ranks are
  /// dense.
  void check() const {
    const std::vector<mw::round>& rounds = election.written;
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      CHECK(rounds[i].number == i + 1);
      CHECK(rounds[i].nodes.size() >= options.limits.min_nodes);
      CHECK(rounds[i].nodes.size() <= options.limits.max_nodes);
      if (i == 0) continue;
      for (const mw::round_node& n : rounds[i].nodes) {
        const mw::round_node* before = rounds[i - 1].find(n.id);
        if (before) CHECK(before->place == n.place);
      }
    }
    for (const node& each : nodes) {
      for (std::size_t i = 1; i < each.rounds.size(); ++i)
        CHECK(each.rounds[i].number > each.rounds[i - 1].number);
      for (const mw::round& r : each.rounds) {
        // No node is told of a round that was not written first.
        REQUIRE(r.number <= rounds.size());
        CHECK(r.to_json() == rounds[r.number - 1].to_json());
      }
    }
  }

  cluster all;
  simulated_election election;
  mw::rendezvous_options options;
  std::deque<node> nodes;
};

}  // namespace

TEST_SUITE_BEGIN("simulation");

TEST_CASE("R1: 2 to 16 nodes that come at once form one round") {
  for (const std::size_t count : {2u, 5u, 16u}) {
    CAPTURE(count);
    meeting m(count, count, count);
    m.add(count);
    const mw::time_point begun = m.all.sim.now();
    REQUIRE(m.all.run_until([&] { return m.stands(count); }, 20s));
    CHECK(m.all.sim.now() - begun < 1s);
    CHECK(m.election.written.size() == 1);
    m.check();
  }
}

TEST_CASE("R8, L59: the last call is kept, and the join limit, within a tenth") {
  meeting m(1, 2, 3);
  m.options.limits.last_call = 10s;
  m.options.limits.join = 60s;
  const mw::time_point begun = m.all.sim.now();
  m.add();
  m.all.run_for(5s);
  m.add();
  REQUIRE(m.all.run_until([&] { return m.stands(2); }, 30s));
  CHECK(m.all.sim.now() - begun > 15s);
  CHECK(m.all.sim.now() - begun < 16s);

  meeting alone(2, 2, 2);
  alone.options.limits.join = 60s;
  node& n = alone.add();
  const mw::time_point started = alone.all.sim.now();
  REQUIRE(alone.all.run_until([&] { return n.has_ended; }, 120s));
  CHECK(alone.all.sim.now() - started < 66s);
  REQUIRE(n.error);
  CHECK(n.error->kind() == mw::rendezvous_error_kind::timed_out);
  CHECK(std::string(n.error->what()).find("1 of at least 2 nodes") != std::string::npos);
}

TEST_CASE("R2: a lost node's place goes to the spare, and the living keep theirs") {
  meeting m(3, 2, 3);
  m.add(3);
  REQUIRE(m.all.run_until([&] { return m.stands(3); }, 20s));
  m.add();
  m.all.run_for(1s);
  CHECK(m.election.written.size() == 1);
  const auto lost = std::find_if(m.nodes.begin(), m.nodes.end(), [](const node& n) {
    return !n.meet->is_coordinator() && !n.rounds.empty();
  });
  const int place = lost->place();
  const mw::time_point begun = m.all.sim.now();
  m.kill(*lost);
  REQUIRE(m.all.run_until([&] { return m.election.written.size() == 2 && m.stands(3); },
                          10s));
  CHECK(m.all.sim.now() - begun < 1s);
  CHECK(m.nodes.back().place() == place);
  m.check();
}

TEST_CASE(
    "R2: a node that joins a round with room is let in, and one that drains is not "
    "lost") {
  meeting m(4, 2, 3);
  m.options.limits.last_call = 1s;
  m.add(2);
  REQUIRE(m.all.run_until([&] { return m.stands(2); }, 20s));
  node& third = m.add();
  REQUIRE(m.all.run_until([&] { return m.stands(3); }, 10s));
  CHECK(std::count(m.nodes[0].changes.begin(), m.nodes[0].changes.end(),
                   mw::round_change::node_waits) +
            std::count(m.nodes[1].changes.begin(), m.nodes[1].changes.end(),
                       mw::round_change::node_waits) >=
        1);
  third.must_leave = true;
  REQUIRE(m.all.run_until([&] { return m.stands(2); }, 10s));
  for (int i : {0, 1}) {
    const auto& changes = m.nodes[static_cast<std::size_t>(i)].changes;
    CHECK(std::count(changes.begin(), changes.end(), mw::round_change::node_left) == 1);
    CHECK(std::count(changes.begin(), changes.end(), mw::round_change::node_lost) == 0);
  }
  m.check();
}

TEST_CASE("a departure that is no longer waited for is told all the same") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    meeting m(seed, 2, 3);
    m.add(3);
    REQUIRE(m.all.run_until([&] { return m.stands(3); }, 20s));
    for (node& each : m.nodes) {
      if (each.meet->is_coordinator() || each.must_leave) continue;
      each.gives_up_leaving = each.must_leave = true;
      break;
    }
    REQUIRE(m.all.run_until([&] { return m.stands(2); }, 10s));
    for (const node& each : m.nodes) {
      if (each.must_leave) continue;
      CHECK(each.changes.front() == mw::round_change::node_left);
    }
  }
}

TEST_CASE("R3: a coordinator killed at any step is followed, and its node is replaced") {
  for (std::uint64_t seed = 1; seed <= seed_count(300) / 6 + 1; ++seed) {
    CAPTURE(seed);
    meeting m(seed, 2, 3);
    m.options.limits.last_call = 300ms;
    m.add(4);
    node* dies = nullptr;
    m.all.sim.at_step(40 * seed, [&] {
      dies = m.coordinator();
      if (dies) m.kill(*dies);
    });
    REQUIRE(m.all.run_until([&] { return m.all.sim.steps() > 40 * seed && m.stands(3); },
                            30s));
    if (!dies) continue;
    const bool was_in_it = m.election.written.back().find(dies->meet->id()) != nullptr;
    CHECK(!was_in_it);
    m.check();
  }
}

TEST_CASE("R3: a round that stands does not notice the end of the coordinator") {
  meeting m(5, 2, 2);
  m.add(2);
  // The third coordinates nothing yet; it waits for a place.
  m.add();
  REQUIRE(m.all.run_until([&] { return m.stands(2); }, 20s));
  m.all.run_for(1s);
  node* first = m.coordinator();
  REQUIRE(first);
  const bool is_in_round = !first->rounds.empty();
  const mw::time_point begun = m.all.sim.now();
  m.kill(*first);
  const auto is_followed = [&] { return m.coordinator() != nullptr; };
  REQUIRE(m.all.run_until(is_followed, 10s));
  // Its agents heard its end: the lease was revoked, not waited for.
  CHECK(m.all.sim.now() - begun < 500ms);
  if (is_in_round) REQUIRE(m.all.run_until([&] { return m.stands(2); }, 10s));
  m.all.run_for(10s);
  CHECK(m.election.written.size() == (is_in_round ? 2 : 1));
  m.check();
}

TEST_CASE("R3: the survivors of a coordinator are in the next round within 0.5 s") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    meeting m(seed, 2, 3);
    m.add(3);
    REQUIRE(m.all.run_until([&] { return m.stands(3); }, 20s));
    m.all.run_for(1s);
    node* const first = m.coordinator();
    REQUIRE(first);
    const mw::time_point begun = m.all.sim.now();
    m.kill(*first);
    REQUIRE(m.all.run_until([&] { return m.stands(2); }, 10s));
    CHECK(m.all.sim.now() - begun < 500ms);
    m.check();
  }
}

TEST_CASE("R3: a living coordinator that is taken for dead costs a round and no place") {
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    CAPTURE(seed);
    meeting m(seed, 3, 3);
    m.add(3);
    REQUIRE(m.all.run_until([&] { return m.stands(3); }, 20s));
    m.all.run_for(1s);
    node* const first = m.coordinator();
    REQUIRE(first);
    node& other = &m.nodes.front() == first ? m.nodes.back() : m.nodes.front();
    m.all.cut(*first->process, *other.process);
    // The reset looks like a death to both; each is there again for the next round.
    REQUIRE(m.all.run_until([&] { return m.election.written.size() > 1 && m.stands(3); },
                            15s));
    m.all.run_for(10s);
    CHECK(m.stands(3));
    CHECK(m.election.written.size() <= 3);
    m.check();
  }
}

TEST_CASE(
    "R4, E15: a coordinator that was paused for 20 s writes nothing, and joins anew") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    meeting m(seed, 2, 3);
    m.options.limits.last_call = 100ms;
    m.add(3);
    REQUIRE(m.all.run_until([&] { return m.stands(3); }, 20s));
    node* paused = m.coordinator();
    REQUIRE(paused);
    m.all.sim.stop(paused->process->process());
    const auto others_stand = [&] { return m.election.written.back().nodes.size() == 2; };
    REQUIRE(m.all.run_until(others_stand, 20s));
    CHECK(!m.election.written.back().find(paused->meet->id()));
    m.all.run_for(10s);
    m.all.sim.resume(paused->process->process());
    REQUIRE(m.all.run_until([&] { return m.stands(3); }, 20s));
    // It was told that it had been taken for lost.
    CHECK(std::count(paused->changes.begin(), paused->changes.end(),
                     mw::round_change::node_lost) >= 1);
    m.check();
  }
}

TEST_CASE("R4, E15: a coordinator that is paused while it writes has not written") {
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    meeting m(seed, 2, 3);
    m.options.limits.last_call = 100ms;
    m.add(3);
    node* paused = nullptr;
    // It writes a millisecond after it has decided.
    const auto writes = [&] {
      paused = m.coordinator();
      return paused && m.election.writing > 0;
    };
    REQUIRE(m.all.run_until(writes, 20s));
    m.all.sim.stop(paused->process->process());
    m.all.run_for(10s);
    m.all.sim.resume(paused->process->process());
    REQUIRE(m.all.run_until([&] { return m.stands(3); }, 30s));
    refused += m.election.refused;
    m.check();
  }
  CHECK(refused > 0);
}

TEST_CASE(
    "E4, E5: a round stands while etcd is silent, and the next one forms after that") {
  meeting m(11, 2, 3);
  m.options.limits.last_call = 100ms;
  m.add(3);
  REQUIRE(m.all.run_until([&] { return m.stands(3); }, 20s));
  m.election.is_silent = true;
  m.all.run_for(30s);
  for (const node& each : m.nodes) CHECK(each.changes.empty());
  node* const coordinator = m.coordinator();
  REQUIRE(coordinator);
  node* const lost = &m.nodes.front() == coordinator ? &m.nodes.back() : &m.nodes.front();
  m.kill(*lost);
  m.all.run_for(10s);
  CHECK(m.election.written.size() == 1);
  m.election.is_silent = false;
  REQUIRE(m.all.run_until([&] { return m.stands(2); }, 5s));
  m.check();
}

TEST_CASE("R6: a minority that is cut off from the coordinator forms nothing") {
  meeting m(6, 2, 3);
  m.options.limits.last_call = 100ms;
  m.options.limits.join = 30s;
  m.add(3);
  REQUIRE(m.all.run_until([&] { return m.stands(3); }, 20s));
  node* coordinator = m.coordinator();
  REQUIRE(coordinator);
  node* cut_off = nullptr;
  for (node& each : m.nodes) {
    if (&each != coordinator && !cut_off) cut_off = &each;
  }
  for (node& each : m.nodes) {
    if (&each != cut_off)
      m.all.sim.partition(each.process->process(), cut_off->process->process());
  }
  const auto others_stand = [&] { return m.election.written.back().nodes.size() == 2; };
  const mw::time_point cut = m.all.sim.now();
  REQUIRE(m.all.run_until(others_stand, 60s));
  // The limit of silence counts once.
  CHECK(m.all.sim.now() - cut < m.options.limits.silence + 1s);
  CHECK(m.all.sim.now() - cut > m.options.limits.silence - 1s);
  m.all.run_for(20s);
  CHECK(!m.election.written.back().find(cut_off->meet->id()));
  CHECK(cut_off->number() == 1);
  m.check();
}

TEST_CASE("R7: a closed run ends all its nodes, and those that come later") {
  meeting m(7, 2, 3);
  m.options.limits.last_call = 100ms;
  m.add(2);
  REQUIRE(m.all.run_until([&] { return m.stands(2); }, 20s));
  m.nodes[1].must_close = true;
  REQUIRE(
      m.all.run_until([&] { return m.nodes[0].has_ended && m.nodes[1].has_ended; }, 10s));
  CHECK(m.nodes[0].changes.back() == mw::round_change::closed);
  CHECK(m.election.is_closed);
  node& later = m.add();
  REQUIRE(m.all.run_until([&] { return later.has_ended; }, 10s));
  REQUIRE(later.error);
  CHECK(later.error->kind() == mw::rendezvous_error_kind::closed);
}

TEST_CASE(
    "over tcp the agent at the endpoint coordinates, and its successor follows it") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    meeting m(seed, 2, 3);
    m.options.limits.last_call = 10s;
    member_process& first_host = m.meet_over_tcp();
    // Others come before the coordinator does.
    m.add(2);
    m.all.run_for(500ms);
    node& first = m.add(&first_host);
    const auto all_in = [&](std::uint64_t number, std::size_t size) {
      return std::all_of(m.nodes.begin(), m.nodes.end(), [&](const node& n) {
        return !n.is_alive() ||
               (n.number() == number && n.rounds.back().nodes.size() == size);
      });
    };
    REQUIRE(m.all.run_until([&] { return all_in(1, 3); }, 20s));
    CHECK(first.meet->is_coordinator());
    // Another agent on its host takes the port when it is free.
    m.kill(first);
    m.all.run_for(1s);
    node& second = m.add(&first_host);
    REQUIRE(m.all.run_until([&] { return all_in(2, 3); }, 20s));
    CHECK(second.meet->is_coordinator());
    CHECK(second.place() == first.place());
  }
}

TEST_CASE("over tcp agents end by name when their coordinator is gone for good") {
  meeting m(9, 2, 2);
  member_process& host = m.meet_over_tcp();
  node& first = m.add(&host);
  node& other = m.add();
  REQUIRE(
      m.all.run_until([&] { return first.number() == 1 && other.number() == 1; }, 20s));
  const mw::time_point begun = m.all.sim.now();
  m.kill(first);
  REQUIRE(m.all.run_until([&] { return other.has_ended; }, 20s));
  CHECK(m.all.sim.now() - begun < 4s);
  REQUIRE(other.error);
  CHECK(other.error->kind() == mw::rendezvous_error_kind::no_coordinator);
}

TEST_CASE("R4: an agent's own pause is no time in which it looked for a coordinator") {
  meeting m(10, 2, 2);
  member_process& host = m.meet_over_tcp();
  node& first = m.add(&host);
  node& other = m.add();
  REQUIRE(
      m.all.run_until([&] { return first.number() == 1 && other.number() == 1; }, 20s));
  m.kill(first);
  // It has noticed the death, and is stopped before it gives up.
  m.all.run_for(500ms);
  m.all.sim.stop(other.process->process());
  m.all.run_for(10s);
  REQUIRE(!other.has_ended);
  m.all.sim.resume(other.process->process());
  const mw::time_point resumed = m.all.sim.now();
  REQUIRE(m.all.run_until([&] { return other.has_ended; }, 20s));
  CHECK(m.all.sim.now() - resumed >= 1900ms);
  CHECK(m.all.sim.now() - resumed < 4s);
}

TEST_CASE(
    "over tcp a coordinator that knows of no round gives no number that a spare has "
    "heard of") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    meeting m(seed, 2, 2);
    member_process& host = m.meet_over_tcp();
    node& first = m.add(&host);
    node& second = m.add();
    REQUIRE(m.all.run_until([&] { return first.number() == 1 && second.number() == 1; },
                            20s));
    node& third = m.add();
    m.all.run_for(1s);
    m.kill(second);
    REQUIRE(m.all.run_until([&] { return third.number() == 2; }, 20s));
    node& spare = m.add();
    m.all.run_for(1s);
    m.kill(third);
    m.kill(first);
    m.all.run_for(300ms);
    node& next = m.add(&host);
    REQUIRE(
        m.all.run_until([&] { return spare.number() > 0 && next.number() > 0; }, 20s));
    CHECK(spare.number() > 2);
    CHECK(spare.rounds.back().to_json() == next.rounds.back().to_json());
  }
}

TEST_CASE(
    "over tcp a node is told that it is lost if others get the number of its round") {
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    CAPTURE(seed);
    meeting m(seed, 2, 2);
    member_process& host = m.meet_over_tcp();
    node& first = m.add(&host);
    node& left = m.add();
    REQUIRE(
        m.all.run_until([&] { return first.number() == 1 && left.number() == 1; }, 20s));
    m.kill(first);
    node& next = m.add(&host);
    m.add();
    REQUIRE(m.all.run_until([&] { return next.number() > 0; }, 20s));
    // One of two is in the new round, and the other waits: none stays with the dead.
    REQUIRE(m.all.run_until([&] { return !left.changes.empty(); }, 20s));
    CHECK(left.changes.front() == mw::round_change::node_lost);
  }
}

TEST_CASE("a spare waits for as long as the round stands, and a surplus one is refused") {
  meeting m(12, 2, 2);
  m.options.limits.join = 10s;
  m.options.limits.spares = 1;
  m.add(4);
  REQUIRE(m.all.run_until([&] { return m.stands(2); }, 20s));
  m.all.run_for(60s);
  std::size_t waiting = 0;
  std::size_t refused = 0;
  for (const node& each : m.nodes) {
    if (!each.rounds.empty()) continue;
    waiting += each.has_ended ? 0 : 1;
    if (each.error && each.error->kind() == mw::rendezvous_error_kind::refused) {
      ++refused;
      CHECK(std::string(each.error->what()).find("2 nodes and 1 spares") !=
            std::string::npos);
    }
  }
  CHECK(waiting == 1);
  CHECK(refused == 1);
  for (node& each : m.nodes) {
    if (each.rounds.empty()) continue;
    m.kill(each);
    break;
  }
  REQUIRE(m.all.run_until([&] { return m.election.written.size() == 2 && m.stands(2); },
                          10s));
}

TEST_CASE("a node with other limits is refused by name, and disturbs no other") {
  meeting m(8, 2, 2);
  m.add(2);
  REQUIRE(m.all.run_until([&] { return m.stands(2); }, 20s));
  m.options.limits.max_nodes = 3;
  node& odd = m.add();
  REQUIRE(m.all.run_until([&] { return odd.has_ended; }, 10s));
  REQUIRE(odd.error);
  CHECK(odd.error->kind() == mw::rendezvous_error_kind::refused);
  CHECK(std::string(odd.error->what()).find("wants 2 to 2 nodes") != std::string::npos);
  m.options.limits.max_nodes = 2;
  m.all.run_for(1s);
  CHECK(m.election.written.size() == 1);
}

TEST_SUITE_END();
