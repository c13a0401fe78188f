// The deadline of a collective: it names the members that did not enter.
#include <deque>

#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

/// A world of three, in which the last member enters nothing.
class three {
 public:
  three() {
    std::vector<started<failure>> forming_all;
    for (rank_t r = 0; r < 3; ++r) {
      worlds.emplace_back(nodes[static_cast<std::size_t>(r)].rt, store,
                          world_options{.name = "three", .rank = r, .size = 3});
      forming_all.push_back(
          nodes[static_cast<std::size_t>(r)].rt.start(forming(worlds.back())));
    }
    for (rank_t r = 0; r < 3; ++r) {
      const failure f = nodes[static_cast<std::size_t>(r)].finish(
          forming_all[static_cast<std::size_t>(r)]);
      REQUIRE_MESSAGE(!f, f.text());
    }
  }
  /// Of the first, which has the deadline, and of the second.
  std::pair<failure, failure> sum_with_a_deadline(duration limit) {
    auto with = [](world& w, std::vector<float>& x, duration l) -> task<failure> {
      co_return (co_await outcome(w.all_reduce(x, sum).within(l))).error();
    };
    auto without = [](world& w, std::vector<float>& x) -> task<failure> {
      co_return (co_await outcome(w.all_reduce(x, sum))).error();
    };
    std::vector<float> x(8, 1.0f), y(8, 1.0f);
    auto second = nodes[1].rt.start(without(worlds[1], y));
    failure first = nodes[0].run(with(worlds[0], x, limit));
    return {std::move(first), nodes[1].finish(second)};
  }

  memory_store store;
  std::deque<node> nodes{3};
  std::deque<world> worlds;
};

bool says(const failure& f, std::string_view words) {
  return f.text().find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("a deadline that cuts a collective names the ranks that did not enter it") {
  three all;
  // The others are asked at half of it, and not only after half a second.
  const auto [first, second] = all.sum_with_a_deadline(800ms);
  for (const failure& f : {first, second}) {
    CAPTURE(f.text());
    CHECK(f.cause == cause::overdue);
    CHECK(f.rank == 2);
    CHECK(f.peer.pid != 0);
    CHECK(says(f, "rank 2 (pid "));
    CHECK(says(f, "its deadline passed at rank 0: all_reduce 1 waits for rank 2"));
  }
}

TEST_CASE("a deadline that comes before the others are asked says that") {
  three all;
  const auto [first, second] = all.sum_with_a_deadline(0ms);
  for (const failure& f : {first, second}) {
    CAPTURE(f.text());
    CHECK(f.cause == cause::overdue);
    CHECK(f.rank == no_rank);
    CHECK(says(f, "its deadline passed at rank 0, and the others have not said yet"));
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
