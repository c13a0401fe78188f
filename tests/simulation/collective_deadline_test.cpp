// The deadline of a collective: it names the members that did not enter.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/world/outcome.hpp"
#include "simulation/seeds.hpp"
#include "simulation/world_cluster.hpp"

using namespace manyworlds_tests;

namespace {

/// A world of three, in which the last member does not enter the last sum.
class three {
 public:
  explicit three(std::uint64_t seed) : all_(seed) {
    for (mw::rank_t r = 0; r < 3; ++r) all_.add("p" + std::to_string(r));
  }
  /// The first has the deadline. Sums of all come before, one each millisecond, of which
  /// the even ones have it too.
  void sum_with_a_deadline(mw::duration limit, int before) {
    for (mw::rank_t r = 0; r < 3; ++r)
      process(r).start(member(r, r == 0 ? limit : 1h, before));
    REQUIRE(all_.run_until([&] { return first && second; }, 60s));
    over_ = true;
    const seed_report ended = finished(all_);
    for (const std::string& c : ended.complaints) FAIL_CHECK(c);
  }

  std::optional<mw::failure> first, second;

 private:
  member_process& process(mw::rank_t r) { return all_.at(static_cast<std::size_t>(r)); }

  mw::task<void> member(mw::rank_t self, mw::duration limit, int before) {
    mw::world w(process(self).runtime(), all_.shared_store,
                {.name = "three", .rank = self, .size = 3});
    co_await w;
    std::vector<float> x(8, 1.0f);
    for (int i = 0; i < before; ++i) {
      co_await w.all_reduce(x, mw::sum).within(i % 2 == 1 ? limit : 1h);
      co_await mw::sleep_for(1ms);
    }
    if (self < 2) {
      const auto summed = co_await mw::outcome(w.all_reduce(x, mw::sum).within(limit));
      (self == 0 ? first : second) = summed.error();
    }
    while (!over_) co_await mw::sleep_for(100ms);
  }

  cluster all_;
  bool over_ = false;
};

bool says(const mw::failure& f, std::string_view words) {
  return f.text().find(words) != std::string::npos;
}

}  // namespace

TEST_SUITE_BEGIN("simulation");

TEST_CASE("a deadline that cuts a collective names the ranks that did not enter it") {
  for (const mw::duration limit : {40ms, 200ms, 800ms, 3000ms}) {
    // The others are asked at half of it, whenever the timer was armed for earlier sums.
    for (const int before : {0, 1, 30, 333}) {
      CAPTURE(limit.count());
      CAPTURE(before);
      three all(1);
      all.sum_with_a_deadline(limit, before);
      for (const mw::failure& f : {*all.first, *all.second}) {
        CAPTURE(f.text());
        CHECK(f.cause == mw::cause::overdue);
        CHECK(f.rank == 2);
        CHECK(f.peer.pid != 0);
        CHECK(says(f, "rank 2 (pid "));
        CHECK(says(f, "its deadline passed at rank 0: all_reduce " +
                          std::to_string(before + 1) + " waits for rank 2"));
      }
    }
  }
}

TEST_CASE("a deadline that comes before the others are asked says that") {
  three all(1);
  all.sum_with_a_deadline(0ms, 0);
  for (const mw::failure& f : {*all.first, *all.second}) {
    CAPTURE(f.text());
    CHECK(f.cause == mw::cause::overdue);
    CHECK(f.rank == mw::no_rank);
    CHECK(says(f, "its deadline passed at rank 0, and the others have not said yet"));
  }
}

TEST_SUITE_END();
