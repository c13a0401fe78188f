#include <cstring>

#include "collective_fixture.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;
using namespace std::chrono_literals;

namespace {

const std::vector<operation_kind> with_data{
    operation_kind::broadcast,  operation_kind::reduce,        operation_kind::all_reduce,
    operation_kind::gather,     operation_kind::all_gather,    operation_kind::scatter,
    operation_kind::all_to_all, operation_kind::reduce_scatter};

const std::vector<algorithm> all_algorithms{algorithm::flat, algorithm::direct,
                                            algorithm::logarithmic, algorithm::ring};

/// The one rule by which a collective is done.
class only {
 public:
  only(operation_kind kind, algorithm use)
      : rule_{kind, placement::anywhere, 1000, std::size_t(-1), use} {}
  [[nodiscard]] host_backend_options options() const {
    host_backend_options o;
    o.algorithms = std::span(&rule_, 1);
    return o;
  }

 private:
  algorithm_rule rule_;
};

void run(cluster& c, collective_run& all) {
  all.start(c);
  REQUIRE(c.until([&] { return all.ended(); }));
  all.check();
  for (rank_t r = 0; r < all.size; ++r) CHECK(c[r].events.reason == "");
}

}  // namespace

TEST_SUITE("host collectives") {
  TEST_CASE("every algorithm gives what its collective promises, whatever the members") {
    for (const operation_kind kind : with_data) {
      for (const algorithm use : all_algorithms) {
        if (!can_do(use, kind)) continue;
        const only rule(kind, use);
        for (const rank_t size : {1, 2, 3, 4, 5, 8}) {
          cluster c(size, ground::simulated, rule.options());
          for (const std::size_t count : {0U, 1U, 3U, 64U, 5000U}) {
            for (const bool in_place : {false, true}) {
              CAPTURE(name_of(kind));
              CAPTURE(name_of(use));
              CAPTURE(size);
              CAPTURE(count);
              CAPTURE(in_place);
              collective_run all(kind, size, count, sum, (size - 1) / 2, in_place, false);
              run(c, all);
            }
          }
        }
      }
    }
  }

  TEST_CASE("parts may differ in size, and be empty") {
    for (const operation_kind kind :
         {operation_kind::gather, operation_kind::all_gather, operation_kind::scatter,
          operation_kind::all_to_all, operation_kind::reduce_scatter}) {
      for (const algorithm use : all_algorithms) {
        if (!can_do(use, kind)) continue;
        const only rule(kind, use);
        cluster c(4, ground::simulated, rule.options());
        for (const std::size_t count : {0U, 1U, 1000U}) {
          for (const bool in_place : {false, true}) {
            CAPTURE(name_of(kind));
            CAPTURE(count);
            CAPTURE(in_place);
            collective_run all(kind, 4, count, sum, 2, in_place, true);
            run(c, all);
          }
        }
      }
    }
  }

  TEST_CASE("collectives of many slices come out right over every transport") {
    for (const ground g : all_grounds()) {
      for (const operation_kind kind : with_data) {
        CAPTURE(std::string(name_of(g)));
        CAPTURE(name_of(kind));
        host_backend_options o;
        o.one_host = is_shared(g);
        cluster c(3, g, o);
        collective_run all(kind, 3, 150'000, sum, 1, false, false);
        run(c, all);
        collective_run again(kind, 3, 150'000, sum, 2, true, false);
        run(c, again);
      }
    }
  }

  TEST_CASE("every reduction reduces") {
    for (const operation_kind kind : {operation_kind::reduce, operation_kind::all_reduce,
                                      operation_kind::reduce_scatter}) {
      for (const algorithm use : all_algorithms) {
        if (!can_do(use, kind)) continue;
        const only rule(kind, use);
        cluster c(4, ground::simulated, rule.options());
        for (const reduction by : {sum, prod, min, max, avg}) {
          CAPTURE(name_of(kind));
          CAPTURE(name_of(by));
          collective_run all(kind, 4, 100, by, 0, false, false);
          run(c, all);
        }
      }
    }
  }

  TEST_CASE("sums of floats are the same bits on all members and from run to run") {
    for (const algorithm use : all_algorithms) {
      CAPTURE(name_of(use));
      const only rule(operation_kind::all_reduce, use);
      std::vector<float> first;
      for (int round = 0; round < 2; ++round) {
        cluster c(5, ground::simulated, rule.options(),
                  static_cast<std::uint64_t>(round) + 1);
        std::vector<std::vector<float>> values;
        std::deque<collective_op> ops;
        for (int r = 0; r < 5; ++r) {
          auto& v = values.emplace_back(1001);
          for (std::size_t i = 0; i < v.size(); ++i) {
            v[i] = 1.0F / static_cast<float>(i + 3) * static_cast<float>(r * r + 1);
          }
        }
        for (rank_t r = 0; r < 5; ++r) {
          auto& v = values[static_cast<std::size_t>(r)];
          ops.emplace_back(operation_kind::all_reduce, v, v);
          c.at(r).start(ops.back());
        }
        REQUIRE(c.until([&] {
          return std::all_of(ops.begin(), ops.end(), [](auto& op) { return op.done(); });
        }));
        if (first.empty()) first = values[0];
        for (auto& v : values)
          CHECK(std::memcmp(v.data(), first.data(), 1001 * sizeof(float)) == 0);
      }
    }
  }

  TEST_CASE("law 5: collectives take effect in the order they are started") {
    for (const ground g : all_grounds()) {
      CAPTURE(std::string(name_of(g)));
      cluster c(3, g);
      std::deque<collective_run> started;
      for (int i = 0; i < 40; ++i) {
        const operation_kind kind = with_data[static_cast<std::size_t>(i) % 8];
        started.emplace_back(kind, 3, static_cast<std::size_t>(i) * 37, sum,
                             static_cast<rank_t>(i % 3), false, false);
      }
      // Each member starts all of them before the next starts any.
      for (rank_t r = 0; r < 3; ++r) {
        for (auto& all : started) all.start(c, r);
      }
      REQUIRE(c.until([&] { return started.back().ended(); }));
      for (auto& all : started) all.check();
    }
  }

  TEST_CASE("a root that only gives is not held up by members that are behind") {
    cluster c(2, ground::simulated);
    std::vector<std::uint64_t> word{7};
    std::deque<collective_op> gave;
    for (int i = 0; i < 10; ++i) {
      gave.emplace_back(operation_kind::broadcast, word, word).part.root = 0;
      c.at(0).start(gave.back());
    }
    c.settle();
    for (auto& op : gave) CHECK(op.done());
    std::vector<std::uint64_t> got(10, 0);
    std::deque<collective_op> took;
    for (auto& place : got) {
      const std::span<std::uint64_t> one(&place, 1);
      took.emplace_back(operation_kind::broadcast, one, one).part.root = 0;
      c.at(1).start(took.back());
    }
    REQUIRE(c.until([&] { return took.back().ended(); }));
    CHECK(got == std::vector<std::uint64_t>(10, 7));
  }

  TEST_CASE("no receive on fresh lanes takes a message of a collective") {
    cluster c(2, ground::simulated);
    receive_op waits;
    waits.peer = no_rank;
    waits.takes_fresh_lanes = true;
    c.at(1).start(waits);
    arrival_op looks;
    looks.peer = 0;
    looks.takes_fresh_lanes = true;
    c.at(1).start(looks);
    std::uint64_t word = 7;
    const std::span<std::uint64_t> one(&word, 1);
    collective_op gave(operation_kind::broadcast, one, one);
    gave.part.root = 0;
    c.at(0).start(gave);
    c.settle();
    CHECK_FALSE(waits.ended());
    CHECK_FALSE(looks.ended());
    std::uint64_t got = 0;
    const std::span<std::uint64_t> place(&got, 1);
    collective_op took(operation_kind::broadcast, place, place);
    took.part.root = 0;
    c.at(1).start(took);
    REQUIRE(c.until([&] { return took.ended(); }));
    CHECK(got == 7);
    CHECK(c.at(1).withdraw(waits));
    CHECK(c.at(1).withdraw(looks));
  }

  TEST_CASE("law 9: a root that runs ahead of a slow member waits at the window") {
    cluster c(2, ground::simulated);
    std::vector<std::uint8_t> block(4000, 3);
    std::deque<collective_op> gave;
    for (int i = 0; i < 1000; ++i) {
      gave.emplace_back(operation_kind::broadcast, block, block).part.root = 0;
      c.at(0).start(gave.back());
    }
    c.settle();
    const auto done =
        std::count_if(gave.begin(), gave.end(), [](auto& op) { return op.ended(); });
    CHECK(done > 10);
    CHECK(done < 200);
    std::deque<collective_op> took;
    for (int i = 0; i < 1000; ++i) {
      took.emplace_back(operation_kind::broadcast, block, block).part.root = 0;
      c.at(1).start(took.back());
    }
    REQUIRE(c.until([&] { return took.back().ended() && gave.back().ended(); }));
    CHECK(c[0].events.quiet());
    CHECK(c[1].events.quiet());
  }
}
