#include <algorithm>

#include "device_questions.hpp"
#include "gpu_member.hpp"

namespace mwbench {

namespace {

constexpr std::size_t count = 16 << 10;

/// A world of one rank with two buffers of its own.
class tenant {
 public:
  tenant(gpu_member& g, std::string_view name, int most_multiprocessors)
      : world_(describe(g, name, most_multiprocessors)), pool_(g.pool()) {}

  mw::task<void> move_in() {
    co_await world_;
    co_await world_.device_ready();
    from_ = mw::device_buffer<float>(pool_, count, world_.stream());
    into_ = mw::device_buffer<float>(pool_, count, world_.stream());
    co_await fill(from_);
  }
  mw::task<void> use(double seconds) {
    const auto begin = now_ns();
    while (us_since(begin) < seconds * 1e6) {
      co_await world_.all_reduce(from_, into_, mw::sum);
      ++operations_;
    }
    per_second_ =
        static_cast<double>(std::exchange(operations_, 0)) / (us_since(begin) / 1e6);
  }
  mw::task<void> move_out() {
    from_ = {};
    into_ = {};
    co_await world_.leave();
  }
  [[nodiscard]] double per_second() const noexcept { return per_second_; }

 private:
  static mw::world describe(gpu_member& g, std::string_view name, int most) {
    mw::device_options options;
    options.most_multiprocessors = most;
    return g.describe(name, 1, options);
  }

  mw::world world_;
  const mw::device_pool& pool_;
  mw::device_buffer<float> from_;
  mw::device_buffer<float> into_;
  std::int64_t operations_ = 0;
  double per_second_ = 0;
};

mw::task<void> measure(gpu_member& g, const worlds_options& o, report& out) {
  g.tell(out);
  std::vector<std::unique_ptr<tenant>> all;
  const auto forming = now_ns();
  for (int i = 0; i < o.worlds; ++i) {
    all.push_back(std::make_unique<tenant>(g, fmt::format("tenant/{}", i), 1));
  }
  std::vector<mw::task<void>> moving;
  for (auto& each : all) moving.push_back(each->move_in());
  co_await mw::when_all(std::move(moving));
  const double ready_ms = ms_since(forming);

  co_await all.front()->use(o.seconds / 10);
  co_await all.front()->use(o.seconds);
  const double alone = all.front()->per_second();
  std::vector<mw::task<void>> together;
  for (auto& each : all) together.push_back(each->use(o.seconds));
  co_await mw::when_all(std::move(together));

  samples each_one;
  double sum = 0;
  double least = all.front()->per_second();
  for (const auto& each : all) {
    each_one.add(each->per_second());
    sum += each->per_second();
    least = std::min(least, each->per_second());
  }
  for (auto& each : all) co_await each->move_out();
  fields row{
      {"bench", "worlds"},
      {"worlds", o.worlds},
      {"size", count * sizeof(float)},
      {"ready_ms", rounded(ready_ms)},
      {"one_per_s", rounded(alone)},
      {"all_per_s", rounded(sum)},
      {"ratio", rounded(sum / alone)},
      {"least_per_s", rounded(least)},
      {"median_per_s", each_one.median()},
      {"most_per_s", each_one.largest()},
  };
  g.row(out, std::move(row));
}

}  // namespace

void worlds(const common_options& common, const worlds_options& options) {
  gpu_member g(common, 0);
  report out(common.json, "nccl");
  g.runtime().run(measure(g, options, out));
}

}  // namespace mwbench
