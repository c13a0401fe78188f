// Accept and connect while members die and stores forget: who waits is met, once, and in
// time.
#include "manyworlds/serve/accept.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>

#include "manyworlds/serve/connect.hpp"
#include "serve/join_queue.hpp"
#include "simulation/scenario.hpp"
#include "simulation/world_cluster.hpp"

using namespace manyworlds_tests;

namespace {

/// Which member processes are in a world with which, as the bodies see it.
struct meetings {
  std::map<std::uint64_t, std::size_t> of_acceptors;
  std::map<std::size_t, std::uint64_t> of_connectors;
  std::size_t connected = 0;

  [[nodiscard]] bool is_met(const member_process& m) const {
    const auto found = of_connectors.find(m.index());
    return found != of_connectors.end() && of_acceptors.count(found->second) > 0;
  }
};

mw::task<void> until_over(mw::world& w) {
  std::uint64_t word = 0;
  co_await w.recv(std::span(&word, 1), mw::from(1 - w.rank()));
}

mw::task<void> accept_all(member_process& self, meetings& seen, std::size_t most = 1024) {
  auto body = [&](mw::world& w) -> mw::task<void> {
    const std::uint64_t id = w.view().id;
    CHECK(seen.of_acceptors.emplace(id, self.index()).second);
    co_await until_over(w);
  };
  co_await mw::accept(self.runtime(), *self.rendezvous,
                      {.service = "decode", .most = most}, body);
}

mw::task<void> connect_once(member_process& self, meetings& seen) {
  auto body = [&](mw::world& w) -> mw::task<void> {
    seen.of_connectors[self.index()] = w.view().id;
    ++seen.connected;
    co_await until_over(w);
  };
  co_await mw::connect(self.runtime(), *self.rendezvous, {.service = "decode"}, body,
                       mw::after_close::form_again);
}

/// Takes who waits, and never does anything with them.
mw::task<void> only_take(member_process& self, std::size_t& taken) {
  mw::join_queue queue(mw::access::core(self.runtime()), *self.rendezvous, "decode");
  taken += (co_await queue.take(1024)).size();
}

mw::task<void> count_keys(mw::store& st, std::int64_t& keys) {
  keys = co_await st.num_keys();
}

std::int64_t keys_left(cluster& all, member_process& asked) {
  std::int64_t keys = -1;
  asked.start(count_keys(all.shared_store, keys));
  REQUIRE(all.run_until([&] { return keys >= 0; }, 1s));
  return keys;
}

/// Counts what is asked of a store.
class counting_store final : public mw::store {
 public:
  [[nodiscard]] std::string address() const override { return "memory"; }
  [[nodiscard]] mw::task<mw::store_reply> perform(mw::store_request request) override {
    ++requests;
    return under_.perform(std::move(request));
  }
  std::size_t requests = 0;

 private:
  mw::memory_store under_;
};

}  // namespace

TEST_SUITE_BEGIN("simulation");

TEST_CASE("a peer that was taken by an acceptor that died is with another within 0.5 s") {
  cluster all(3);
  meetings seen;
  std::size_t taken = 0;
  member_process& dies = all.add("dies");
  member_process& waits = all.add("waits");
  waits.start(connect_once(waits, seen));
  dies.start(only_take(dies, taken));
  REQUIRE(all.run_until([&] { return taken == 1; }, 1s));
  all.kill(dies);
  member_process& next = all.add("next");
  const mw::time_point begun = all.sim.now();
  next.start(accept_all(next, seen));
  REQUIRE(all.run_until([&] { return seen.is_met(waits); }, 10s));
  CHECK(all.sim.now() - begun < 500ms);
}

TEST_CASE(
    "an acceptor that is killed while it forms a world delays its connector little") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    cluster all(seed);
    meetings seen;
    member_process& dies = all.add("dies");
    member_process& other = all.add("other");
    member_process& waits = all.add("waits");
    waits.start(connect_once(waits, seen));
    all.run_for(100ms);
    dies.start(accept_all(dies, seen));
    all.run_for(std::chrono::microseconds(100) * seed);
    all.kill(dies);
    const mw::time_point begun = all.sim.now();
    other.start(accept_all(other, seen));
    const auto met = [&] {
      return seen.is_met(waits) &&
             seen.of_acceptors.at(seen.of_connectors.at(waits.index())) == other.index();
    };
    REQUIRE(all.run_until(met, 20s));
    CHECK(all.sim.now() - begun < 1s);
  }
}

TEST_CASE("what dead connectors left behind neither blocks nor delays the living") {
  cluster all(4);
  meetings seen;
  std::vector<member_process*> dead;
  for (int i = 0; i < 8; ++i) {
    dead.push_back(&all.add("dead" + std::to_string(i)));
    dead.back()->start(connect_once(*dead.back(), seen));
  }
  all.run_for(100ms);
  for (member_process* each : dead) all.kill(*each);
  member_process& living = all.add("living");
  living.start(connect_once(living, seen));
  all.run_for(100ms);
  member_process& front = all.add("front");
  const mw::time_point begun = all.sim.now();
  // One at a time, and the living one stands last.
  front.start(accept_all(front, seen, 1));
  REQUIRE(all.run_until([&] { return seen.is_met(living); }, 10s));
  CHECK(all.sim.now() - begun < 100ms);
  CHECK(keys_left(all, front) <= 2);
}

TEST_CASE("a store that restarts empty: who waits enters again, on both sides") {
  for (const bool acceptor_first : {true, false}) {
    CAPTURE(acceptor_first);
    cluster all(5);
    meetings seen;
    member_process& front = all.add("front");
    member_process& worker = all.add("worker");
    if (acceptor_first) {
      front.start(accept_all(front, seen));
    } else {
      worker.start(connect_once(worker, seen));
    }
    all.run_for(3s);
    all.empty_store();
    if (acceptor_first) {
      worker.start(connect_once(worker, seen));
    } else {
      front.start(accept_all(front, seen));
    }
    REQUIRE(all.run_until([&] { return seen.is_met(worker); }, 11s));
  }
}

TEST_CASE("law 7: waiting costs a few requests a minute, and no store needs to poll") {
  cluster all(6);
  meetings seen;
  counting_store accepting;
  counting_store connecting;
  member_process& front = all.add("front");
  member_process& worker = all.add("worker");
  front.rendezvous = &accepting;
  worker.rendezvous = &connecting;
  front.start(accept_all(front, seen));
  worker.start(connect_once(worker, seen));
  all.run_for(60s);
  CHECK(accepting.requests <= 3 * 60 / 10 + 2);
  CHECK(connecting.requests <= 2 * 60 / 5 + 12);
  all.close();
}

TEST_CASE("by seed: acceptors and connectors die and come again, and all are met once") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    cluster all(seed);
    meetings seen;
    std::minstd_rand random(static_cast<std::minstd_rand::result_type>(seed));
    const auto below = [&](std::uint64_t n) { return random() % n; };
    std::vector<member_process*> fronts;
    std::vector<member_process*> workers;
    const auto add = [&](bool is_front) {
      member_process& m =
          all.add((is_front ? "front" : "worker") + std::to_string(all.size()));
      m.start(is_front ? accept_all(m, seen) : connect_once(m, seen));
      return &m;
    };
    for (int i = 0; i < 2; ++i) fronts.push_back(add(true));
    for (int i = 0; i < 5; ++i) workers.push_back(add(false));
    for (int i = 0; i < 12; ++i) {
      all.run_for(std::chrono::microseconds(below(below(4) == 0 ? 2'000'000 : 3'000)));
      const bool is_front = below(2) == 0;
      auto& each = is_front ? fronts[below(2)] : workers[below(5)];
      all.kill(*each);
      each = add(is_front);
      if (below(6) == 0) all.empty_store();
    }
    const auto all_met = [&] {
      return std::all_of(workers.begin(), workers.end(), [&](auto* w) {
        if (!seen.is_met(*w)) return false;
        const std::size_t by = seen.of_acceptors.at(seen.of_connectors.at(w->index()));
        return by == fronts[0]->index() || by == fronts[1]->index();
      });
    };
    REQUIRE_MESSAGE(all.run_until(all_met, 60s), all.dumps());
    all.close();
    for (const std::string& each : all.story.complaints()) FAIL_CHECK(each);
  }
}

TEST_SUITE_END();
