// Collectives with members killed: whichever rank, whichever collective, whenever.
#include "process_fixture.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

namespace {

const std::vector<std::string> kinds{"barrier",    "broadcast",      "reduce",
                                     "all_reduce", "gather",         "all_gather",
                                     "scatter",    "reduce_scatter", "all_to_all"};

enum class moment { before_start, while_blocked, between_operations };

std::string name_of(moment m) {
  return m == moment::before_start    ? "before start"
         : m == moment::while_blocked ? "while blocked"
                                      : "between operations";
}

/// Members in processes of their own, all in one world.
struct crew {
  crew(const site& here, const std::string& world, int size) : name(world) {
    for (int r = 0; r < size; ++r) {
      members.push_back(here.member());
      members.back().order("world " + world + " " + std::to_string(r) + " " +
                           std::to_string(size));
    }
    for (process& m : members) m.expect("formed " + world);
  }
  void order_collective(std::size_t rank, const std::string& kind, std::size_t elements) {
    members[rank].order("collect " + name + " " + kind + " " + std::to_string(elements) +
                        " 1000000000");
  }

  std::string name;
  std::vector<process> members;
};

/// Ranks 0 to 2, of which `victim` is killed; the others must each get one error that
/// names it, and no success after that.
void kill_one(const site& here, const std::string& kind, std::size_t elements,
              std::size_t victim, moment when) {
  CAPTURE(kind);
  CAPTURE(elements);
  CAPTURE(victim);
  CAPTURE(name_of(when));
  const std::string died = "peer_died " + std::to_string(victim);
  crew all(here, "trio", 3);
  const auto each_survivor = [&](auto act) {
    for (std::size_t r = 0; r < 3; ++r) {
      if (r != victim) act(r);
    }
  };
  if (when == moment::before_start) {
    all.members[victim].kill();
    each_survivor([&](std::size_t r) { all.members[r].expect("over trio"); });
    each_survivor([&](std::size_t r) { all.order_collective(r, kind, elements); });
  } else if (when == moment::while_blocked) {
    each_survivor([&](std::size_t r) { all.order_collective(r, kind, elements); });
    each_survivor([&](std::size_t r) { all.members[r].expect("collecting trio"); });
    all.members[victim].kill();
  } else {
    for (std::size_t r = 0; r < 3; ++r) all.order_collective(r, kind, elements);
    for (process& m : all.members) m.expect("under way trio");
    all.members[victim].kill();
  }
  each_survivor([&](std::size_t r) {
    CAPTURE(r);
    const std::string error = all.members[r].expect_one_of({"error trio", "wrong trio"});
    CHECK(error.starts_with("error trio " + died + " "));
    if (when == moment::before_start) CHECK(error == "error trio " + died + " 0");
    // And none after it.
    all.order_collective(r, kind, elements);
    const std::string again = all.members[r].expect_one_of({"error trio", "wrong trio"});
    CHECK(again == "error trio " + died + " 0");
    CHECK(all.members[r].end() == 0);
  });
}

/// Two worlds of three with one leader; a worker of the first is killed. The second does
/// its hundred steps.
void kill_a_worker(engine_kind e, const std::vector<std::string>& of_kinds) {
  for (const std::string& kind : of_kinds) {
    CAPTURE(kind);
    site here(e);
    process leading = here.member();
    std::vector<process> workers;
    for (int i = 0; i < 4; ++i) workers.push_back(here.member());
    for (const std::string world : {"world1", "world2"}) {
      leading.order("world " + world + " 0 3");
      const std::size_t first = world == "world1" ? 0 : 2;
      workers[first].order("world " + world + " 1 3");
      workers[first + 1].order("world " + world + " 2 3");
    }
    leading.expect("formed world1");
    leading.expect("formed world2");
    const std::string endless = "collect world1 " + kind + " 100 1000000000";
    const std::string hundred = "collect world2 " + kind + " 100 100";
    leading.order(endless);
    for (std::size_t i : {0U, 1U}) workers[i].order(endless);
    leading.expect("under way world1");
    workers[1].kill();
    leading.order(hundred);
    for (std::size_t i : {2U, 3U}) workers[i].order(hundred);
    CHECK(leading.expect_one_of({"error world1", "wrong world1"})
              .starts_with("error world1 peer_died 2 "));
    CHECK(workers[0]
              .expect_one_of({"error world1", "wrong world1"})
              .starts_with("error world1 peer_died 2 "));
    CHECK(leading.expect_one_of({"collected world2", "error world2", "wrong world2"}) ==
          "collected world2 100");
    for (std::size_t i : {2U, 3U}) {
      CHECK(workers[i].expect_one_of({"collected world2", "error world2",
                                      "wrong world2"}) == "collected world2 100");
    }
    // Neither the root nor who survives succeeds once more.
    leading.order(endless);
    workers[0].order(endless);
    CHECK(leading.expect("error world1") == "error world1 peer_died 2 0");
    CHECK(workers[0].expect("error world1") == "error world1 peer_died 2 0");
    CHECK(leading.end() == 0);
    for (std::size_t i : {0U, 2U, 3U}) CHECK(workers[i].end() == 0);
  }
}

}  // namespace

TEST_CASE(
    "A5: broadcast and scatter with a worker killed: no success after, and the "
    "other world does its hundred") {
  for (const engine_kind e : engines()) kill_a_worker(e, {"broadcast", "scatter"});
}

TEST_CASE(
    "A6: gather and reduce with a worker killed: who survives has no success "
    "after") {
  for (const engine_kind e : engines()) kill_a_worker(e, {"gather", "reduce"});
}

TEST_CASE("A7: all_reduce and all_gather with a worker killed: both survivors hear it") {
  for (const engine_kind e : engines()) kill_a_worker(e, {"all_reduce", "all_gather"});
}

TEST_CASE(
    "A8: every collective, whichever rank is killed, whenever, ends in one error "
    "that names it") {
  site here(engine_kind::automatic);
  for (const std::string& kind : kinds) {
    for (std::size_t victim = 0; victim < 3; ++victim) {
      for (const moment when :
           {moment::before_start, moment::while_blocked, moment::between_operations}) {
        kill_one(here, kind, 100, victim, when);
      }
    }
  }
}

TEST_CASE("A8: the same in the midst of large collectives") {
  site here(engine_kind::automatic);
  for (const std::string& kind : kinds) {
    if (kind == "barrier") continue;
    for (std::size_t victim = 0; victim < 3; ++victim) {
      kill_one(here, kind, 200'000, victim, moment::between_operations);
    }
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
