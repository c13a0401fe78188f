#include <algorithm>
#include <memory>

#include "device_questions.hpp"
#include "gpu_member.hpp"

namespace mwbench {

namespace {

constexpr std::size_t summed_count = 1024 / sizeof(float);

/// One world of both processes, with a buffer to sum.
class shared_world {
 public:
  shared_world(gpu_member& g, int number)
      : world_(describe(g, number)), pool_(g.pool()) {}

  mw::task<void> move_in() {
    co_await world_;
    co_await world_.device_ready();
    memory_ = mw::device_buffer<float>(pool_, summed_count, world_.stream());
    co_await fill(memory_);
  }
  mw::task<void> use(int rounds) {
    for (int i = 0; i < rounds; ++i) co_await world_.all_reduce(memory_, mw::sum);
  }
  [[nodiscard]] mw::world& world() noexcept { return world_; }
  mw::task<void> move_out() {
    memory_ = {};
    co_await world_.leave();
  }

 private:
  static mw::world describe(gpu_member& g, int number) {
    mw::device_options options;
    options.most_multiprocessors = 1;
    return g.describe(fmt::format("order/{}", number), 2, options);
  }

  mw::world world_;
  const mw::device_pool& pool_;
  mw::device_buffer<float> memory_;
};

using all_worlds = std::vector<std::unique_ptr<shared_world>>;

/// Microseconds for one operation of each world.
mw::task<double> use_all(gpu_member& g, all_worlds& all, int rounds) {
  co_await all.front()->world().barrier();
  const auto begin = now_ns();
  std::vector<mw::task<void>> together;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t at = g.rank() == 0 ? i : all.size() - 1 - i;
    together.push_back(all[at]->use(rounds));
  }
  co_await mw::when_all(std::move(together));
  co_return us_since(begin) / rounds;
}

mw::task<void> run_number(gpu_member& g, int number, const order_options& o, int& names,
                          report& out) {
  all_worlds all;
  for (int i = 0; i < number; ++i) {
    all.push_back(std::make_unique<shared_world>(g, names++));
  }
  std::vector<mw::task<void>> moving;
  for (auto& each : all) moving.push_back(each->move_in());
  co_await mw::when_all(std::move(moving));
  (void)co_await use_all(g, all, std::max(1, o.rounds / 10));
  const double us = co_await use_all(g, all, o.rounds);
  for (auto& each : all) {
    co_await each->world().barrier();
    co_await each->move_out();
  }
  if (g.rank() != 0) co_return;
  fields row{
      {"bench", "order"},
      {"worlds", number},
      {"size", summed_count * sizeof(float)},
      {"round_us", rounded(us)},
      {"us_per_op", rounded(us / number)},
      {"rounds", o.rounds},
  };
  g.row(out, std::move(row));
}

mw::task<void> take_part(gpu_member& g, const order_options& o, report& out) {
  if (g.rank() == 0) g.tell(out);
  int names = 0;
  for (const int number : o.worlds) co_await run_number(g, number, o, names, out);
}

}  // namespace

void order(const common_options& common, const order_options& options) {
  gpu_member g(common, rank_in(common.role));
  report out(common.json, "nccl");
  child peer;
  if (common.leads()) peer = g.start(1);
  g.runtime().run(take_part(g, options, out));
}

}  // namespace mwbench
