#include <fmt/format.h>
#include <signal.h>

#include "questions.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

struct shrink_figures {
  samples detect_ms;
  samples shrink_ms;
  samples all_ms;
};

/// Survives once, and then waits for its end.
mw::task<void> survive(member& m, mw::rank_t rank, mw::rank_t size) {
  mw::world w = m.describe("shrinking", rank, size);
  co_await w;
  // Rank 0 may have passed it, and killed, before this member has.
  (void)co_await mw::outcome(w.barrier());
  (void)co_await w.broken();
  w = co_await w.shrink();
  co_await w.barrier();
  co_await park(w, 0, {});
}

/// The last rank dies; rank 0 measures.
mw::task<void> shrink_once(member& m, mw::rank_t size, shrink_figures& figures) {
  std::vector<child> others;
  for (mw::rank_t r = 1; r < size; ++r) others.push_back(m.start(std::to_string(r)));
  mw::world w = m.describe("shrinking", 0, size);
  co_await w;
  // All members are up, and no connection is new.
  co_await w.barrier();
  const std::int64_t struck = now_ns();
  ::kill(others.back().pid(), SIGKILL);
  (void)co_await w.broken();
  figures.detect_ms.add(ms_since(struck));
  const std::int64_t noticed = now_ns();
  w = co_await w.shrink();
  figures.shrink_ms.add(ms_since(noticed));
  co_await w.barrier();
  figures.all_ms.add(ms_since(struck));
  if (w.size() != size - 1) throw std::runtime_error("a survivor is missing");
}

mw::task<void> lead(member& m, const shrink_options& o, report& out) {
  out.machine(m.engine());
  shrink_figures figures;
  for (int i = 0; i < o.repeat; ++i) {
    out.progress(fmt::format("{} of {}", i + 1, o.repeat));
    co_await shrink_once(m, o.members, figures);
  }
  out.row(fields{
      {"bench", "shrink"},
      {"transport", out.transport()},
      {"members", o.members},
      {"repeats", o.repeat},
      {"detect_ms", figures.detect_ms.median()},
      {"shrink_ms", figures.shrink_ms.median()},
      {"shrink_p99_ms", figures.shrink_ms.p99()},
      {"kill_to_barrier_ms", figures.all_ms.median()},
  });
}

}  // namespace

void shrink(const common_options& common, const shrink_options& options) {
  member m(common);
  if (common.leads()) {
    report out(common.json, common.transport());
    m.runtime().run(lead(m, options, out));
  } else {
    m.runtime().run(survive(m, std::stoi(common.role), options.members));
  }
}

}  // namespace mwbench
