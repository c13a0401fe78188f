// Agents and masters of a job, each against one that says what the test wants: orders of
// older terms, orders twice, words that a store still holds up (laws G-a to G-c).
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/serve/accept.hpp"
#include "manyworlds/serve/connect.hpp"
#include "mpmd/agent_outbox.hpp"
#include "mpmd/agent_words.hpp"
#include "mpmd/job_meeting.hpp"
#include "simulation/simulated_graph.hpp"

using namespace manyworlds_tests;

namespace {

using mw::detail::agent_word;
using mw::detail::agent_wire::word_kind;

const mw::instance_id server{"server", 0};

mw::job_graph one_server() {
  mw::job_graph g("one");
  g.role("server").run({"program"});
  return g;
}

agent_word word_about(word_kind kind, std::uint64_t incarnation) {
  agent_word word;
  word.kind = kind;
  word.instance = server;
  word.incarnation = incarnation;
  word.spec.command = {"program"};
  word.spec.grace = 1s;
  return word;
}

/// One end of the link between master and agent: what it says and what it heard, on each
/// connection anew.
class scripted_end {
 public:
  explicit scripted_end(member_process& at) : process_(at) {}

  void say(agent_word word) { now_.push(std::move(word)); }
  [[nodiscard]] std::size_t count(word_kind kind) const {
    return static_cast<std::size_t>(std::count_if(
        heard.begin(), heard.end(), [&](const auto& w) { return w.kind == kind; }));
  }
  [[nodiscard]] bool is_connected() const { return now_.is_there(); }
  [[nodiscard]] member_process& process() { return process_; }

  std::vector<agent_word> heard;

 protected:
  mw::task<void> talk(mw::world& w, mw::rank_t peer, agent_word first) {
    mw::detail::agent_outbox out;
    out.push(std::move(first));
    const mw::detail::current_outbox::while_connected current(now_, out);
    auto read = [&]() -> mw::task<void> {
      for (;;) heard.push_back(co_await receive_word(w, peer));
    };
    co_await mw::when_any(read(), out.write(w, peer));
  }

 private:
  member_process& process_;
  mw::detail::current_outbox now_;
};

class scripted_master : public scripted_end {
 public:
  /// It announces a term, and says which one it has.
  scripted_master(member_process& at, std::uint64_t term, std::uint64_t said)
      : scripted_end(at), meeting_(*at.rendezvous, "one"), term_(term), said_(said) {}

  static mw::task<void> run(std::shared_ptr<scripted_master> self) {
    co_await self->meeting_.announce(self->term_);
    co_await mw::accept(self->process().runtime(), self->meeting_.keys(),
                        {.service = mw::detail::job_meeting::agents_of(self->term_)},
                        [&](mw::world& w) { return self->serve(w); });
  }

 private:
  mw::task<void> serve(mw::world& w) {
    heard.push_back(co_await receive_word(w, 1));
    agent_word welcome;
    welcome.kind = word_kind::welcome;
    welcome.term = said_;
    welcome.graph = one_server().to_json();
    co_await talk(w, 1, std::move(welcome));
  }

  mw::detail::job_meeting meeting_;
  const std::uint64_t term_;
  const std::uint64_t said_;
};

class scripted_agent : public scripted_end {
 public:
  explicit scripted_agent(member_process& at,
                          std::uint32_t version = mw::detail::agent_wire::version)
      : scripted_end(at), meeting_(*at.rendezvous, "one"), version_(version) {}

  static mw::task<void> run(std::shared_ptr<scripted_agent> self) {
    const std::uint64_t term = co_await self->meeting_.announced_above(0);
    co_await mw::connect(self->process().runtime(), self->meeting_.keys(),
                         {.service = mw::detail::job_meeting::agents_of(term)},
                         [&](mw::world& w) { return self->serve(w); });
  }

 private:
  mw::task<void> serve(mw::world& w) {
    agent_word hello;
    hello.kind = word_kind::hello;
    hello.agent = "scripted";
    hello.node.name = "a";
    hello.node.cpus = {{0, {0, 1}}};
    hello.node.memory = 1 << 30;
    hello.version = version_;
    co_await talk(w, 0, std::move(hello));
  }

  mw::detail::job_meeting meeting_;
  const std::uint32_t version_;
};

/// It refuses each agent, in the words of another version.
class refusing_master : public scripted_end {
 public:
  explicit refusing_master(member_process& at)
      : scripted_end(at), meeting_(*at.rendezvous, "one") {}

  static mw::task<void> run(std::shared_ptr<refusing_master> self) {
    co_await self->meeting_.announce(1);
    co_await mw::accept(self->process().runtime(), self->meeting_.keys(),
                        {.service = mw::detail::job_meeting::agents_of(1)},
                        [&](mw::world& w) { return self->serve(w); });
  }

 private:
  mw::task<void> serve(mw::world& w) {
    heard.push_back(co_await receive_word(w, 1));
    agent_word refusal;
    refusal.kind = word_kind::refusal;
    refusal.version = 1;
    refusal.value = "install the same version";
    co_await send_word(w, 1, std::move(refusal));
  }

  mw::detail::job_meeting meeting_;
};

/// Begins one. Its task owns it too, and ends when the simulation does.
template <class End, class... Arguments>
std::shared_ptr<End> begun(member_process& at, Arguments... arguments) {
  const auto end = std::make_shared<End>(at, arguments...);
  at.start(End::run(end));
  return end;
}

bool is_connected_soon(simulated_graph& job, const scripted_end& end) {
  return job.all.run_until([&] { return end.is_connected(); }, 10s);
}

}  // namespace

TEST_CASE("graph G-a: an incarnation that is ordered twice starts once") {
  simulated_graph job(1, one_server());
  job.checks_records = false;
  job.add_node("a");
  const auto master_end = begun<scripted_master>(job.all.add("master"), 1, 1);
  scripted_master& master = *master_end;
  REQUIRE(is_connected_soon(job, master));
  for (int i = 0; i < 3; ++i) {
    master.say(word_about(word_kind::ensure, 1));
    job.all.run_for(500ms);
  }
  CHECK(job.starts_of(server) == 1);
  SUBCASE("also when it has ended") {
    REQUIRE(job.kill_program(server));
    job.all.run_for(500ms);
    master.say(word_about(word_kind::ensure, 1));
    job.all.run_for(500ms);
    CHECK(job.starts_of(server) == 1);
    // Each order is answered.
    CHECK(master.heard.back().kind == word_kind::report);
    CHECK(master.heard.back().has.front().life == mw::detail::instance_life::ended);
  }
  SUBCASE("nor does an older one") {
    master.say(word_about(word_kind::ensure, 3));
    job.all.run_for(500ms);
    CHECK(job.starts_of(server) == 2);
    master.say(word_about(word_kind::ensure, 2));
    job.all.run_for(500ms);
    CHECK(job.starts_of(server) == 2);
    CHECK(job.living() == 1);
  }
  for (const std::string& each : job.wrong) FAIL_CHECK(each);
}

TEST_CASE("graph G-a: a newer incarnation begins when the older one has ended") {
  simulated_graph job(2, one_server());
  job.checks_records = false;
  job.takes_to_end = 500ms;
  job.add_node("a");
  const auto master_end = begun<scripted_master>(job.all.add("master"), 1, 1);
  scripted_master& master = *master_end;
  REQUIRE(is_connected_soon(job, master));
  master.say(word_about(word_kind::ensure, 1));
  job.all.run_for(500ms);
  master.say(word_about(word_kind::ensure, 2));
  job.all.run_for(3s);
  CHECK(job.starts_of(server) == 2);
  CHECK(job.incarnations.back().number == 2);
  CHECK(job.living() == 1);
  for (const std::string& each : job.wrong) FAIL_CHECK(each);
}

TEST_CASE("graph: an agent keeps an end until it is told that it is recorded") {
  simulated_graph job(3, one_server());
  job.checks_records = false;
  job.add_node("a");
  const auto ends_told_to = [&](std::uint64_t term, auto then) {
    const auto master_end = begun<scripted_master>(job.all.add("master"), term, term);
    scripted_master& master = *master_end;
    REQUIRE(is_connected_soon(job, master));
    then(master);
    job.all.run_for(1s);
    const auto& has = master.heard.front().has;
    job.all.kill(master.process());
    job.all.run_for(3s);
    return has.size();
  };
  ends_told_to(1, [&](scripted_master& master) {
    master.say(word_about(word_kind::ensure, 1));
    job.all.run_for(500ms);
    REQUIRE(job.kill_program(server));
  });
  CHECK(ends_told_to(2, [](scripted_master&) {}) == 1);
  CHECK(ends_told_to(3, [](scripted_master& master) {
          master.say(word_about(word_kind::recorded, 1));
        }) == 1);
  CHECK(ends_told_to(4, [](scripted_master&) {}) == 0);
}

TEST_CASE("graph B60: a master that says an older term is not obeyed") {
  simulated_graph job(4, one_server());
  job.checks_records = false;
  job.add_node("a");
  const auto master_end = begun<scripted_master>(job.all.add("master"), 2, 1);
  scripted_master& master = *master_end;
  for (int i = 0; i < 20; ++i) {
    master.say(word_about(word_kind::ensure, 1));
    job.all.run_for(200ms);
  }
  // It was heard, and left.
  CHECK(master.count(word_kind::hello) > 0);
  CHECK(job.starts_of(server) == 0);
}

TEST_CASE("graph B60: orders of a master that another has followed are not obeyed") {
  simulated_graph job(5, one_server());
  job.checks_records = false;
  job.add_node("a");
  const auto older_end = begun<scripted_master>(job.all.add("older"), 1, 1);
  scripted_master& older = *older_end;
  REQUIRE(is_connected_soon(job, older));
  const auto newer_end = begun<scripted_master>(job.all.add("newer"), 2, 2);
  scripted_master& newer = *newer_end;
  REQUIRE(is_connected_soon(job, newer));
  job.all.run_for(1s);
  older.say(word_about(word_kind::ensure, 1));
  job.all.run_for(2s);
  CHECK(job.starts_of(server) == 0);
  newer.say(word_about(word_kind::ensure, 1));
  job.all.run_for(2s);
  CHECK(job.starts_of(server) == 1);
}

TEST_CASE("graph G-b: nothing is ordered or acknowledged before it is recorded") {
  simulated_graph job(6, one_server());
  job.limits.limits.nodes = 1;
  const auto agent_end = begun<scripted_agent>(job.all.add("agent"));
  scripted_agent& agent = *agent_end;
  bool is_held = false;
  mw::event free;
  job.kept.until_written = [&]() -> mw::task<void> {
    if (is_held) co_await free;
  };
  job.start_master();
  REQUIRE(is_connected_soon(job, agent));
  REQUIRE(job.all.run_until([&] { return agent.count(word_kind::ensure) == 1; }, 10s));
  agent_word report;
  report.kind = word_kind::report;
  report.has.resize(1);
  report.has.front().instance = server;
  report.has.front().incarnation = 1;
  report.has.front().life = mw::detail::instance_life::ready;
  agent.say(report);
  job.all.run_for(1s);
  is_held = true;
  SUBCASE("a fact") {
    agent_word fact = word_about(word_kind::fact, 1);
    fact.key = "step";
    fact.value = "7";
    fact.steps = 1;
    agent.say(fact);
    job.all.run_for(1s);
    CHECK(agent.count(word_kind::fact_recorded) == 0);
    is_held = false;
    free.set();
    job.all.run_for(1s);
    CHECK(agent.count(word_kind::fact_recorded) == 1);
    CHECK(job.kept.rows.at("fact/server.0/step") == "7");
  }
  SUBCASE("an end, and what follows it") {
    report.has.front().life = mw::detail::instance_life::ended;
    report.has.front().exit = {mw::exit_kind::exited, 3, 0, "exited with code 3"};
    agent.say(report);
    job.all.run_for(1s);
    CHECK(agent.count(word_kind::recorded) == 0);
    is_held = false;
    free.set();
    job.all.run_for(1s);
    CHECK(agent.count(word_kind::recorded) == 1);
    CHECK(agent.count(word_kind::ensure) == 2);
    CHECK(agent.heard.back().incarnation == 2);
  }
  is_held = false;
  free.set();
}

TEST_CASE("graph: a master refuses an agent of another version, and says what to do") {
  simulated_graph job(7, one_server());
  job.limits.limits.nodes = 1;
  const std::uint32_t other = mw::detail::agent_wire::version + 1;
  const auto agent_end = begun<scripted_agent>(job.all.add("agent"), other);
  const scripted_agent& agent = *agent_end;
  job.start_master();
  REQUIRE(job.all.run_until([&] { return agent.count(word_kind::refusal) > 0; }, 10s));
  const std::string& why = agent.heard.front().value;
  CAPTURE(why);
  CHECK(agent.heard.front().version == other);
  CHECK(why.find("node \"a\" speaks version " + std::to_string(other)) !=
        std::string::npos);
  CHECK(why.find("install the same version") != std::string::npos);
}

TEST_CASE("graph: an agent that is refused in another version ends, and says why") {
  simulated_graph job(8, one_server());
  const auto master_end = begun<refusing_master>(job.all.add("master"));
  job.add_node("a");
  REQUIRE(job.all.run_until([&] { return !job.said.empty(); }, 30s));
  CHECK(job.said.front() ==
        "an agent ends: the master refuses this agent of node \"a\": install the same "
        "version");
  // Not as often as it can.
  CHECK(master_end->count(word_kind::hello) < 100);
}
