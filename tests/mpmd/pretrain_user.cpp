// A workload of a role graph, for tests: one role of several instances, which train
// together over an edge that is a group. Its argument is how many steps they make.
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/mpmd/role_context.hpp"
#include "manyworlds/mw.hpp"
#include "manyworlds/world/runtime.hpp"

namespace {

constexpr std::int64_t prime = 1'000'000'007;

/// What an instance knows: the same in all that have made as many steps.
struct training {
  std::int64_t steps = 0;
  std::int64_t weight = 1;

  static training from(const std::string& text) {
    training read;
    std::istringstream(text) >> read.steps >> read.weight;
    return read;
  }
  [[nodiscard]] std::string text() const {
    return std::to_string(steps) + " " + std::to_string(weight);
  }
};

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

/// One that was started again, or was ahead of one that was lost, agrees with the others
/// on who is furthest.
mw::task<void> agree(mw::world& w, training& own) {
  const std::array<std::int64_t, 2> mine{own.steps, own.weight};
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(w.size()));
  co_await w.all_gather(std::span(mine), std::span(all));
  for (std::size_t n = 0; n < all.size(); n += 2)
    if (all[n] > own.steps) own = {all[n], all[n + 1]};
}

mw::task<void> train(mw::role_context& self, mw::world& w, std::int64_t steps) {
  const auto saved = self.facts().find("training");
  training own = saved == self.facts().end() ? training() : training::from(saved->second);
  co_await agree(w, own);
  say("goes on from " + std::to_string(own.steps) + " in epoch " +
      std::to_string(w.epoch()));
  while (own.steps < steps) {
    std::array<std::int64_t, 1> gradient{(own.steps + 1) * (w.rank() + 1)};
    co_await w.all_reduce(std::span(gradient), mw::sum);
    own.weight = (own.weight * 3 + gradient[0]) % prime;
    ++own.steps;
    co_await self.record("training", own.text());
    self.progress(static_cast<std::uint64_t>(own.steps));
    co_await mw::sleep_for(std::chrono::milliseconds(40));
  }
  co_await w.barrier();
  say("trained " + own.text());
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return 2;
  const std::int64_t steps = std::atoll(words[1]);
  mw::role_context self;
  mw::runtime rt(self.runtime());
  const auto body = [&](mw::scope&) -> mw::task<void> {
    self.ready();
    co_await self.world("ranks", [&](mw::world& w) { return train(self, w, steps); });
  };
  return self.run(rt, body);
}
