#include <fmt/format.h>

#include <optional>
#include <vector>

#include "costs.hpp"
#include "idle_cost.hpp"
#include "scale_parts.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

mw::task<samples> ping(mw::world& w, int count) {
  samples halves;
  std::uint64_t word = 0;
  for (int i = 0; i < count; ++i) {
    const auto begin = now_ns();
    if (w.rank() == 0) co_await w.send(mw::object(word), mw::to{1});
    co_await w.recv(mw::object(word), mw::from{1 - w.rank()});
    if (w.rank() == 1) co_await w.send(mw::object(word), mw::to{0});
    halves.add(us_since(begin) / 2);
  }
  co_return halves;
}

class worlds_of_two {
 public:
  worlds_of_two(member& m, const scale_options& o, mw::rank_t rank, report& out)
      : member_(m),
        options_(o),
        rank_(rank),
        out_(out),
        first_(m.describe("one", rank)) {}

  mw::task<void> run() {
    co_await first_;
    // Do not pin earlier: the service thread would inherit it.
    std::optional<pinned_thread> pinned;
    if (options_.pin) pinned.emplace(rank_);
    co_await exchange(first_, 1 - rank_);
    (void)co_await ping(first_, options_.pings);
    memory_before_ = memory_use::now();
    for (const int count : options_.worlds) co_await with(count);
    co_await first_.leave();
  }

 private:
  /// Worlds beside the first, each after some traffic.
  mw::task<void> with(int count) {
    if (rank_ == 0) out_.progress(fmt::format("{} worlds", count));
    std::vector<mw::world> worlds;
    for (int i = 0; i < count; ++i)
      worlds.push_back(member_.describe(fmt::format("of/{}/{}", count, i), rank_));
    co_await first_.barrier();
    auto begin = now_ns();
    co_await form_all(worlds);
    co_await first_.barrier();
    const double form_ms = ms_since(begin);
    const std::size_t on_shm = on_shared_memory(worlds);
    for (mw::world& w : worlds) co_await exchange(w, 1 - rank_);
    co_await mw::sleep_for(settling);
    const memory_use memory = (memory_use::now() - memory_before_) / count;
    co_await first_.barrier();
    const samples halves = co_await ping(first_, options_.pings);
    const idle_cost idle = co_await sleep_and_look(options_.seconds);
    co_await first_.barrier();
    begin = now_ns();
    co_await leave_all(worlds);
    co_await first_.barrier();
    const double leave_ms = ms_since(begin);
    if (rank_ != 0) co_return;
    out_.row({
        {"bench", "scale"},
        {"transport", out_.transport()},
        {"worlds", count},
        {"on_shm", on_shm},
        {"form_ms", rounded(form_ms)},
        {"form_ms_each", rounded(form_ms / count)},
        {"leave_ms_each", rounded(leave_ms / count)},
        {"ping_p50_us", halves.median()},
        {"ping_p99_us", halves.p99()},
        {"cpu_percent", rounded(idle.cpu_percent)},
        {"wake_ups_per_s", rounded(idle.wake_ups_per_s)},
        {"segments_per_s", rounded(idle.segments_per_s)},
        {"own_kib_each", rounded(memory.own)},
        {"shared_kib_each", rounded(memory.shared)},
    });
  }

  member& member_;
  const scale_options& options_;
  const mw::rank_t rank_;
  report& out_;
  mw::world first_;
  memory_use memory_before_;
};

}  // namespace

mw::task<void> scale_worlds(member& m, const scale_options& o, mw::rank_t rank,
                            report& out) {
  worlds_of_two all(m, o, rank, out);
  co_await all.run();
}

}  // namespace mwbench
