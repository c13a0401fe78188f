// The values of a sum that survivors try again after a member died in the middle of it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/world/outcome.hpp"
#include "simulation/pattern.hpp"
#include "simulation/seeds.hpp"
#include "simulation/world_cluster.hpp"

using namespace manyworlds_tests;

namespace {

/// From one buffer to another, as README.md shows; or in place, as it must not be done.
enum class retry : unsigned char { from_another_buffer, in_place };

/// A world of 3 to 5 that adds up without a pause. One or two are killed, each at a step
/// that the seed chooses.
class summing {
 public:
  summing(std::uint64_t seed, retry how) : all_(seed), seed_(seed), how_(how) {}

  seed_report run() {
    const std::size_t size = 3 + chosen(0, 3);
    const std::size_t killed = 1 + chosen(1, 2);
    left_ = static_cast<mw::rank_t>(size - killed);
    count_ = std::array<std::size_t, 4>{1, 64, 4096, 40000}[chosen(2, 4)];
    for (std::size_t i = 0; i < size; ++i) {
      all_.add(fmt::format("p{}", i));
      all_.at(i).start(member(i, size));
    }
    if (!all_.run_until([&] { return sums_ >= size; }, 10s))
      all_.story.complain("no member added up");
    for (std::size_t k = 0; k < killed; ++k) {
      const std::uint64_t step = all_.sim.steps() + 1 + chosen(3 + k, 400);
      all_.sim.at_step(step, [&, victim = (chosen(5, size) + k) % size] {
        all_.kill(all_.at(victim));
      });
    }
    if (!all_.run_until([&] { return ended_ == size - killed; }, 30s))
      all_.story.complain("the survivors did not go on");
    over_ = true;
    return finished(all_);
  }

 private:
  [[nodiscard]] std::size_t chosen(std::uint64_t by, std::size_t among) const {
    return static_cast<std::size_t>(mixed(seed_ * 8 + by) % among);
  }
  /// Of a rank of the first world: the sum of any of them tells which they are.
  [[nodiscard]] static float element(mw::rank_t first, std::size_t i) {
    return static_cast<float>((std::uint32_t{1} << first) * (i % 7 + 1));
  }

  mw::task<void> attempt(mw::world& w, const std::vector<float>& mine,
                         std::vector<float>& x) const {
    if (how_ == retry::in_place) {
      co_await w.all_reduce(x, mw::sum);
    } else {
      co_await w.all_reduce(mine, x, mw::sum);
    }
  }
  mw::task<void> member(std::size_t self, std::size_t size) {
    mw::world w(all_.at(self).runtime(), all_.shared_store,
                {.name = "sums",
                 .rank = static_cast<mw::rank_t>(self),
                 .size = static_cast<mw::rank_t>(size)});
    co_await w;
    std::vector<mw::rank_t> first;  // ranks of the first world, by rank
    for (mw::rank_t r = 0; r < w.size(); ++r) first.push_back(r);
    std::vector<float> mine(count_), x(count_);
    for (std::size_t i = 0; i < count_; ++i) mine[i] = element(w.rank(), i);
    x = mine;
    for (int in_the_last = 0; in_the_last < 3;) {
      const auto summed = co_await mw::outcome(attempt(w, mine, x));
      if (!summed) {
        w = co_await w.shrink();
        std::vector<mw::rank_t> now;
        for (mw::rank_t r = 0; r < w.size(); ++r)
          now.push_back(first.at(static_cast<std::size_t>(w.previous_rank_of(r))));
        first = std::move(now);
        continue;
      }
      check(self, first, x);
      x = how_ == retry::in_place ? mine : std::vector<float>(count_, -1.0f);
      ++sums_;
      if (w.size() == left_) ++in_the_last;
    }
    ++ended_;
    while (!over_) co_await mw::sleep_for(100ms);
  }

  void check(std::size_t self, const std::vector<mw::rank_t>& first,
             const std::vector<float>& x) {
    for (std::size_t i = 0; i < count_; ++i) {
      float expected = 0;
      for (const mw::rank_t r : first) expected += element(r, i);
      if (x[i] == expected) continue;
      return all_.story.complain(
          fmt::format("p{}: element {} of a sum of {} members is {}, and should be {}",
                      self, i, first.size(), x[i], expected));
    }
  }

  cluster all_;
  std::uint64_t seed_;
  retry how_;
  mw::rank_t left_ = 0;
  std::size_t count_ = 0;
  std::size_t sums_ = 0;
  std::size_t ended_ = 0;
  bool over_ = false;
};

}  // namespace

TEST_SUITE_BEGIN("simulation");

TEST_CASE("survivors that add up from one buffer to another get the sum of the living") {
  for_each_seed(1, seed_count(100), [](std::uint64_t seed) {
    return summing(seed, retry::from_another_buffer).run();
  });
}

TEST_CASE("and those that add up in place would not: the test above can fail") {
  std::size_t wrong = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const seed_report r = summing(seed, retry::in_place).run();
    wrong += std::any_of(
        r.complaints.begin(), r.complaints.end(),
        [](const std::string& c) { return c.find(" of a sum of ") != c.npos; });
  }
  MESSAGE("of 20 seeds, " << wrong << " give a wrong sum in place");
  CHECK(wrong > 0);
}

TEST_SUITE_END();
