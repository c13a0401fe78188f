#include <deque>

#include "collective_fixture.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;
using namespace std::chrono_literals;

TEST_SUITE("host collectives: their end") {
  TEST_CASE("no member passes a barrier before the last has entered it") {
    for (const algorithm use : {algorithm::flat, algorithm::logarithmic}) {
      const algorithm_rule rule{operation_kind::barrier, placement::anywhere, 4, 0, use};
      host_backend_options o;
      o.algorithms = std::span(&rule, 1);
      for (const ground g : all_grounds()) {
        CAPTURE(name_of(use));
        CAPTURE(std::string(name_of(g)));
        cluster c(4, g, o);
        for (rank_t last = 0; last < 4; ++last) {
          std::deque<barrier_op> ops(4);
          for (rank_t r = 0; r < 4; ++r) {
            if (r != last) c.at(r).start(ops[static_cast<std::size_t>(r)]);
          }
          c.settle();
          for (auto& op : ops) CHECK_FALSE(op.ended());
          c.at(last).start(ops[static_cast<std::size_t>(last)]);
          REQUIRE(c.until([&] {
            return std::all_of(ops.begin(), ops.end(),
                               [](auto& op) { return op.done(); });
          }));
        }
      }
    }
  }

  TEST_CASE("an overdue barrier is logged with the absent ranks, then breaks the world") {
    cluster c(3, ground::simulated);
    std::deque<barrier_op> ops(2);
    c.at(0).start(ops[0]);
    c.at(2).start(ops[1]);
    CHECK_FALSE(c.at(2).withdraw(ops[1]));
    c.sim().run_for(5500ms);
    REQUIRE(c[0].events.warnings.size() == 1);
    REQUIRE(c[2].events.warnings.size() == 1);
    CHECK(c[0].events.warnings[0] == "barrier 1 waits for rank 1");
    CHECK(c[2].events.warnings[0] == "barrier 1 waits for rank 1");
    CHECK(c[0].events.quiet());
    c.sim().run_for(56s);
    CHECK(c[0].events.cause == cause::overdue);
    CHECK(c[0].events.broken_by == std::vector<rank_t>{1});
    CHECK_FALSE(ops[0].ended());
  }

  TEST_CASE("law 8: what a member did before it entered does not count as lateness") {
    cluster c(2, ground::simulated);
    // As in a long turn: nothing has looked at the clock since.
    c.sim().run_for(70s);
    barrier_op first;
    c.at(0).start(first);
    c.sim().run_for(4s);
    CHECK(c[0].events.quiet());
    CHECK(c[0].events.warnings.empty());
    barrier_op last;
    c.at(1).start(last);
    REQUIRE(c.until([&] { return first.done() && last.done(); }));
  }

  TEST_CASE("an absent rank 0 is logged too") {
    cluster c(2, ground::simulated);
    barrier_op op;
    c.at(1).start(op);
    c.sim().stop(*c[0].process);
    c.sim().run_for(6s);
    REQUIRE(c[1].events.warnings.size() == 1);
    CHECK(c[1].events.warnings[0] == "barrier 1 waits for rank 0");
    c.sim().resume(*c[0].process);
  }

  TEST_CASE("a barrier that a member has left cannot be passed by any") {
    for (const ground g : all_grounds()) {
      for (rank_t leaver = 0; leaver < 3; ++leaver) {
        CAPTURE(std::string(name_of(g)));
        CAPTURE(leaver);
        cluster c(3, g);
        std::deque<barrier_op> first(3);
        for (rank_t r = 0; r < 3; ++r) c.at(r).start(first[static_cast<std::size_t>(r)]);
        REQUIRE(c.until([&] { return first[static_cast<std::size_t>(leaver)].ended(); }));
        c.at(leaver).leave(c[leaver].gone, c[leaver].home->now() + 5s);
        REQUIRE(c.until([&] { return c[leaver].gone.runs == 1; }));
        REQUIRE(c.until([&] {
          return std::all_of(first.begin(), first.end(),
                             [](auto& op) { return op.done(); });
        }));
        std::deque<barrier_op> second(3);
        for (rank_t r = 0; r < 3; ++r) {
          if (r != leaver) c.at(r).start(second[static_cast<std::size_t>(r)]);
        }
        REQUIRE(c.until([&] {
          return std::count_if(second.begin(), second.end(),
                               [](auto& op) { return op.ended(); }) == 2;
        }));
        for (rank_t r = 0; r < 3; ++r) {
          if (r != leaver)
            CHECK(second[static_cast<std::size_t>(r)].failed(cause::closed));
          CHECK(c[r].events.quiet());
        }
      }
    }
  }

  TEST_CASE("many barriers entered at once are all passed") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      constexpr std::size_t many = 2053;
      cluster c(2, g);
      std::deque<barrier_op> first(many);
      std::deque<barrier_op> second(many);
      for (auto& op : first) c.at(1).start(op);
      c.settle();
      for (auto& op : second) c.at(0).start(op);
      REQUIRE(c.until([&] { return first.back().ended() && second.back().ended(); }));
      const auto passed = [](auto& op) { return op.done(); };
      CHECK(std::all_of(first.begin(), first.end(), passed));
      CHECK(std::all_of(second.begin(), second.end(), passed));
      CHECK(c[0].events.quiet());
      CHECK(c[1].events.quiet());
    }
  }

  TEST_CASE("barriers entered at once after a leave are each answered once") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(4, g);
      c.at(1).leave(c[1].gone, c[1].home->now() + 5s);
      REQUIRE(c.until([&] { return c[0].events.left == std::vector<rank_t>{1}; }));
      std::deque<barrier_op> ops(3);
      for (auto& op : ops) c.at(2).start(op);
      REQUIRE(c.until([&] { return ops.back().ended(); }));
      for (auto& op : ops) CHECK(op.failed(cause::closed));
      c.at(3).leave(c[3].gone, c[3].home->now() + 5s);
      REQUIRE(c.until([&] { return c[3].gone.runs == 1; }));
      c.settle();
      barrier_op late;
      c.at(2).start(late);
      REQUIRE(c.until([&] { return late.ended(); }));
      CHECK(late.failed(cause::closed));
      CHECK(c[0].events.quiet());
      CHECK(c[2].events.quiet());
    }
  }
}
