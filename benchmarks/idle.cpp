#include <fmt/format.h>

#include "costs.hpp"
#include "idle_cost.hpp"
#include "questions.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

/// A lane without parked receives.
constexpr mw::lane talk{1'000'000};

struct cost {
  idle_cost idle;
  double kib_per_world = 0;
};

fields row_of(const idle_options& o, const cost& here, const cost& there,
              std::string_view transport) {
  return {
      {"bench", "idle"},
      {"transport", transport},
      {"worlds", o.worlds},
      {"receives", o.receives},
      {"seconds", o.seconds},
      {"cpu_percent", rounded(here.idle.cpu_percent)},
      {"peer_cpu_percent", rounded(there.idle.cpu_percent)},
      {"wake_ups_per_s", rounded(here.idle.wake_ups_per_s)},
      {"kib_per_world", rounded(here.kib_per_world)},
      {"peer_kib_per_world", rounded(there.kib_per_world)},
  };
}

mw::task<void> take_part(member& m, const common_options& common, const idle_options& o,
                         report& out) {
  const mw::rank_t rank = common.leads() ? 0 : 1;
  const mw::rank_t peer = 1 - rank;
  if (common.leads()) out.machine(m.engine());
  std::vector<mw::world> worlds;
  // The first world pays for the link; the cost of one more world is measured.
  worlds.push_back(m.describe("first", rank));
  co_await worlds[0];
  co_await exchange(worlds[0], peer);
  const double memory_before = memory_use::now().own;
  for (int i = 1; i <= o.worlds; ++i) {
    worlds.push_back(m.describe(fmt::format("idle/{}", i), rank));
  }
  co_await form_all(worlds);
  for (mw::world& w : worlds) co_await exchange(w, peer);
  co_await mw::sleep_for(settling);
  const double memory = (memory_use::now().own - memory_before) / o.worlds;

  std::vector<mw::task<void>> tasks;
  for (int i = 0; i < o.receives; ++i) {
    const auto lane = static_cast<std::uint64_t>(i / o.worlds);
    tasks.push_back(
        park(worlds[static_cast<std::size_t>(1 + i % o.worlds)], peer, mw::lane(lane)));
  }
  auto look = [&]() -> mw::task<void> {
    if (common.leads()) out.progress(fmt::format("{} s of nothing", o.seconds));
    const cost here{co_await sleep_and_look(o.seconds), memory};
    co_await worlds[0].send_message(here, mw::to{peer}, talk);
    const auto there = co_await worlds[0].recv_message<cost>(mw::from{peer}, talk);
    if (common.leads()) out.row(row_of(o, here, there.head, out.transport()));
    co_await leave_all(worlds);
  };
  tasks.push_back(look());
  co_await mw::when_all(std::move(tasks));
}

}  // namespace

void idle(const common_options& common, const idle_options& options) {
  member m(common);
  report out(common.json, common.transport());
  const std::vector<child> others = m.start_others(2);
  m.runtime().run(take_part(m, common, options, out));
}

}  // namespace mwbench
