// Members that disagree on who is the root, also where the roots only give.
#include <random>

#include "collective_fixture.hpp"

using namespace std::chrono_literals;

namespace manyworlds::host_tests::roots {

namespace {

using enum operation_kind;
constexpr operation_kind rooted[] = {broadcast, reduce, gather, scatter};

/// One member's part in a collective of `count` elements with that root.
struct part {
  part(operation_kind kind, rank_t self, rank_t size, rank_t root, std::size_t count)
      : in(kind == scatter && self == root ? count * static_cast<std::size_t>(size)
                                           : count),
        out(kind == gather && self == root ? count * static_cast<std::size_t>(size)
                                           : count),
        op(kind, in, out) {
    op.part.root = root;
    op.part.by = sum;
    if (kind == broadcast) op.target = view_list(std::span(&as_target, 1));
  }

  std::vector<std::int32_t> in;
  std::vector<std::int32_t> out;
  buffer_view as_target{in};
  collective_op op;
};

/// The root of each member, and what came of it.
struct dispute {
  dispute(operation_kind kind, std::vector<rank_t> roots, std::size_t count,
          host_backend_options options = {}, ground g = ground::simulated,
          std::uint64_t seed = 1)
      : c(static_cast<rank_t>(roots.size()), g, options, seed) {
    const auto size = static_cast<rank_t>(roots.size());
    for (rank_t r = 0; r < size; ++r) {
      parts.emplace_back(kind, r, size, roots[static_cast<std::size_t>(r)], count);
    }
  }
  void start(rank_t r) { c.at(r).start(parts[static_cast<std::size_t>(r)].op); }
  void start_all(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<rank_t> order(parts.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (const rank_t r : order) {
      start(r);
      if (random() % 2 == 0) {
        c.sim().run_for(std::chrono::microseconds(random() % 300));
      }
    }
  }
  [[nodiscard]] bool found() {
    for (rank_t r = 0; r < static_cast<rank_t>(parts.size()); ++r) {
      if (c[r].events.cause == cause::mismatch) return true;
    }
    return false;
  }
  /// Of the first member that found it.
  [[nodiscard]] std::string text() {
    for (rank_t r = 0; r < static_cast<rank_t>(parts.size()); ++r) {
      if (!c[r].events.reason.empty()) return c[r].events.reason;
    }
    return {};
  }

  cluster c;
  std::deque<part> parts;
};

/// All roots that `size` members can name, but for those where all agree.
std::vector<std::vector<rank_t>> disagreeing_roots(rank_t size) {
  std::vector<std::vector<rank_t>> all{{}};
  for (rank_t r = 0; r < size; ++r) {
    std::vector<std::vector<rank_t>> longer;
    for (const auto& roots : all) {
      for (rank_t root = 0; root < size; ++root) {
        longer.push_back(roots);
        longer.back().push_back(root);
      }
    }
    all = std::move(longer);
  }
  std::erase_if(all, [](const std::vector<rank_t>& roots) {
    return std::all_of(roots.begin(), roots.end(),
                       [&](rank_t root) { return root == roots.front(); });
  });
  return all;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

}  // namespace

TEST_SUITE("host collectives: roots") {
  TEST_CASE(
      "members that disagree on the root learn it by that collective, whatever they do "
      "next") {
    for (const ground g : {ground::simulated, ground::shared_simulated}) {
      if (g == ground::shared_simulated && testing::reading_is_refused_here()) continue;
      CAPTURE(std::string(name_of(g)));
      std::uint64_t seed = 0;
      for (const operation_kind kind : rooted) {
        CAPTURE(std::string(name_of(kind)));
        for (rank_t size = 2; size <= 3; ++size) {
          for (const auto& roots : disagreeing_roots(size)) {
            CAPTURE(roots);
            for (const std::size_t count : {2UL, 30'000UL}) {
              CAPTURE(count);
              CAPTURE(++seed);
              dispute d(kind, roots, count, {}, g, seed);
              d.start_all(seed);
              // Also where all wait for each other, and must ask.
              d.c.sim().run_for(3s);
              CHECK(d.found());
              const std::string text = d.text();
              CHECK_MESSAGE(has(text, "(root "), text);
              CHECK_MESSAGE(has(text, ", rank "), text);
            }
          }
        }
      }
    }
  }

  TEST_CASE("every algorithm of a root's collective shows a disagreement on the root") {
    for (const algorithm use :
         {algorithm::flat, algorithm::direct, algorithm::logarithmic, algorithm::ring}) {
      CAPTURE(std::string(name_of(use)));
      for (const operation_kind kind : {broadcast, reduce}) {
        if (!can_do(use, kind)) continue;
        CAPTURE(std::string(name_of(kind)));
        const algorithm_rule rule{kind, placement::anywhere, 5, std::size_t{1} << 40,
                                  use};
        host_backend_options options;
        options.algorithms = std::span(&rule, 1);
        for (const std::size_t count : {5UL, 10'000UL}) {
          for (std::uint64_t seed = 1; seed <= 12; ++seed) {
            CAPTURE(seed);
            std::mt19937_64 random(seed);
            std::vector<rank_t> roots(5);
            for (rank_t& root : roots) root = static_cast<rank_t>(random() % 5);
            if (seed % 2 == 0) std::fill(roots.begin() + 1, roots.end(), roots[1]);
            if (std::count(roots.begin(), roots.end(), roots[0]) == 5) continue;
            CAPTURE(roots);
            dispute d(kind, roots, count, options, ground::simulated, seed);
            d.start_all(seed);
            d.c.sim().run_for(3s);
            CHECK(d.found());
          }
        }
      }
    }
  }

  TEST_CASE("two roots that both only give are told by the message, without asking") {
    for (const operation_kind kind : {broadcast, scatter}) {
      CAPTURE(std::string(name_of(kind)));
      for (const bool at_once : {true, false}) {
        dispute d(kind, {0, 1}, 2);
        d.start(0);
        if (!at_once) d.c.settle();
        CHECK(d.parts[0].op.done());
        d.start(1);
        // Asking begins after half a second.
        d.c.sim().run_for(300ms);
        CHECK(d.found());
      }
    }
  }

  TEST_CASE("both are named, with what and where in the source each has entered") {
    for (const rank_t late : {0, 1}) {
      dispute d(broadcast, {0, 1}, 2);
      d.parts[0].op.where = source_position("src/leader.cpp", 12);
      d.parts[1].op.where =
          source_position("/home/operator/project/train/worker.cpp", 345);
      d.start(1 - late);
      d.c.settle();
      d.start(late);
      d.c.sim().run_for(300ms);
      for (const rank_t r : {0, 1}) {
        const std::string& text = d.c[r].events.reason;
        CAPTURE(text);
        CHECK(has(text, "broadcast 1 (root 0) at src/leader.cpp:12"));
        CHECK(has(text, "broadcast 1 (root 1) at project/train/worker.cpp:345"));
        CHECK(has(text, "rank " + std::to_string(r) + " entered broadcast 1 (root " +
                            std::to_string(r) + ")"));
        CHECK(d.c[r].events.broken_by == std::vector<rank_t>{1 - r});
      }
    }
  }

  TEST_CASE("a member that does not answer where it is delays no break") {
    dispute d(broadcast, {0, 1}, 2);
    d.start(0);
    d.c.settle();
    d.c.sim().stop(*d.c[0].process);
    d.start(1);
    d.c.sim().run_for(150ms);
    CHECK(d.c[1].events.cause == cause::mismatch);
    CHECK(has(d.text(), "rank 0 broadcast 1 (root 0)"));
    d.c.sim().resume(*d.c[0].process);
  }

  TEST_CASE("a disagreement on a collective that was ended long ago is one too") {
    // Rank 0 gives to rank 2 only, and goes on; rank 1 gives to rank 0.
    dispute d(gather, {2, 0, 2}, 2);
    d.start(0);
    std::deque<part> more;
    for (int i = 0; i < 100; ++i) {
      more.emplace_back(gather, 0, 3, 2, 2);
      d.c.at(0).start(more.back().op);
    }
    d.c.settle();
    CHECK(more.back().op.done());
    CHECK_FALSE(d.found());
    d.start(1);
    d.c.sim().run_for(300ms);
    CHECK(d.c[0].events.cause == cause::mismatch);
    CHECK_MESSAGE(has(d.text(), "rank 1 gather 1"), d.text());
  }

  TEST_CASE("who disagrees and leaves at once has not only left") {
    for (const bool entered_first : {true, false}) {
      CAPTURE(entered_first);
      dispute d(broadcast, {0, 1}, 2);
      if (entered_first) {
        d.start(1);
        d.c.settle();
      }
      d.start(0);
      d.c.at(0).leave(d.c[0].gone, d.c[0].home->now() + 5s);
      d.c.sim().run_for(300ms);
      if (!entered_first) {
        d.start(1);
        d.c.sim().run_for(300ms);
      }
      const bool told =
          d.c[1].events.cause == cause::mismatch || d.parts[1].op.failed(cause::mismatch);
      CHECK(told);
      const std::string text = d.text().empty() ? d.parts[1].op.failure_detail : d.text();
      CHECK_MESSAGE(has(text, "broadcast 1 (root 0)"), text);
      CHECK_MESSAGE(has(text, "broadcast 1 (root 1)"), text);
    }
  }

  TEST_CASE("wrong arguments and a leave at once are a mismatch to who entered rightly") {
    for (const rank_t size : {2, 3}) {
      CAPTURE(size);
      for (const bool entered_first : {true, false}) {
        CAPTURE(entered_first);
        cluster c(size, ground::simulated);
        std::vector<float> x(64, 1);
        std::vector<float> y(63, 2);
        std::vector<float> z(64, 3);
        collective_op wrong(operation_kind::all_reduce, x, y);
        collective_op right(operation_kind::all_reduce, z, z);
        if (entered_first) c.at(1).start(right);
        c.settle();
        c.at(0).start(wrong);
        c.at(0).leave(c[0].gone, c[0].home->now() + 5s);
        c.settle();
        if (!entered_first) c.at(1).start(right);
        c.settle();
        const bool told =
            c[1].events.cause == cause::mismatch || right.failed(cause::mismatch);
        CHECK(told);
        const std::string text =
            c[1].events.reason.empty() ? right.failure_detail : c[1].events.reason;
        CHECK_MESSAGE(has(text, "rank 0 could not enter all_reduce 1"), text);
      }
    }
  }

  TEST_CASE("members that agree and are far ahead of each other are never told apart") {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      CAPTURE(seed);
      std::mt19937_64 random(seed);
      cluster c(3, ground::simulated, {}, seed);
      std::deque<collective_run> all;
      for (int i = 0; i < 60; ++i) {
        const operation_kind kind = rooted[random() % 4];
        const std::size_t count = random() % 3 == 0 ? 20'000 : 3;
        all.emplace_back(kind, 3, count, sum, static_cast<rank_t>(random() % 3), false,
                         false);
      }
      // Each member starts them at its own pace.
      std::vector<std::size_t> next(3, 0);
      while (*std::min_element(next.begin(), next.end()) < all.size()) {
        const auto r = static_cast<std::size_t>(random() % 3);
        for (std::uint64_t n = random() % 20; n > 0 && next[r] < all.size(); --n) {
          all[next[r]++].start(c, static_cast<rank_t>(r));
        }
        c.sim().run_for(std::chrono::microseconds(random() % 500));
      }
      REQUIRE(c.until([&] {
        return std::all_of(all.begin(), all.end(), [](auto& e) { return e.ended(); });
      }));
      for (rank_t r = 0; r < 3; ++r)
        CHECK_MESSAGE(c[r].events.quiet(), c[r].events.reason);
    }
  }
}

}  // namespace manyworlds::host_tests::roots
