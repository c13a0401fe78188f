#include <fmt/format.h>

#include <string>
#include <vector>

#include "costs.hpp"
#include "idle_cost.hpp"
#include "scale_parts.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

using namespace std::chrono_literals;

constexpr auto meeting_limit = 60s;
constexpr int barriers = 1000;

/// Start times of the other members are not measured.
mw::task<void> meet(member& m, mw::rank_t rank, mw::rank_t size) {
  const auto key = [size](mw::rank_t of) { return fmt::format("scale/{}/{}", size, of); };
  std::vector<std::string> keys;
  for (mw::rank_t r = 0; r < size; ++r) keys.push_back(key(r));
  co_await m.store().set(key(rank), "here");
  co_await m.store().wait(keys, meeting_limit);
}

/// Returns the mean of all members, at rank 0.
mw::task<idle_cost> mean_of_all(mw::world& w, idle_cost own) {
  if (w.rank() != 0) {
    co_await w.send_message(own, mw::to{0});
    co_return own;
  }
  for (mw::rank_t r = 1; r < w.size(); ++r) {
    const auto other = co_await w.recv_message<idle_cost>(mw::from{r});
    own.cpu_percent += other.head.cpu_percent;
    own.wake_ups_per_s += other.head.wake_ups_per_s;
    own.segments_per_s += other.head.segments_per_s;
  }
  co_return idle_cost{own.cpu_percent / w.size(), own.wake_ups_per_s / w.size(),
                      own.segments_per_s / w.size()};
}

}  // namespace

mw::task<void> scale_members(member& m, const scale_options& o, mw::rank_t rank,
                             mw::rank_t size, report& out) {
  if (rank == 0) out.progress(fmt::format("{} members", size));
  std::vector<mw::world> worlds;
  worlds.push_back(m.describe(fmt::format("members/{}", size), rank, size));
  co_await meet(m, rank, size);
  const memory_use before = memory_use::now();
  auto begin = now_ns();
  co_await worlds[0];
  co_await worlds[0].barrier();
  const double first_form_ms = ms_since(begin);
  const memory_use memory = memory_use::now() - before;
  samples again_ms;
  for (int i = 0; i < o.repeat; ++i) {
    mw::world again = m.describe(fmt::format("again/{}/{}", size, i), rank, size);
    co_await worlds[0].barrier();
    begin = now_ns();
    co_await again;
    co_await again.barrier();
    again_ms.add(ms_since(begin));
    co_await again.leave();
  }
  // Members that have just begun still start up, and sleep in place of taking turns.
  for (int i = 0; i < barriers; ++i) co_await worlds[0].barrier();
  samples barrier_us;
  for (int i = 0; i < barriers; ++i) {
    begin = now_ns();
    co_await worlds[0].barrier();
    barrier_us.add(us_since(begin));
  }
  const idle_cost own = co_await sleep_and_look(o.seconds);
  const idle_cost idle = co_await mean_of_all(worlds[0], own);
  co_await leave_all(worlds);
  if (rank != 0) co_return;
  out.row({
      {"bench", "scale"},
      {"transport", out.transport()},
      {"members", size},
      {"first_form_ms", rounded(first_form_ms)},
      {"form_ms", again_ms.median()},
      {"barrier_us", rounded(barrier_us.mean())},
      {"barrier_p50_us", barrier_us.median()},
      {"barrier_p99_us", barrier_us.p99()},
      {"cpu_percent", rounded(idle.cpu_percent)},
      {"wake_ups_per_s", rounded(idle.wake_ups_per_s)},
      {"segments_per_s", rounded(idle.segments_per_s)},
      {"own_kib", rounded(memory.own)},
      {"shared_kib", rounded(memory.shared)},
  });
}

}  // namespace mwbench
