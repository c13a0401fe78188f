#include "teardown.hpp"

#include "allocation.hpp"
#include "plan.hpp"

#include <poll.h>

namespace nccl_emulation {

namespace {

constexpr int slow_ms = 2000;

// The proxy service of the real library runs until every co-located peer that connected
// to it has closed (2.28.9 src/proxy.cc).
void wait_for_neighbours(communicator& c, interrupts cut) {
  for (int r = 0; r < c.count; ++r) {
    if (r == c.rank || !c.beside(r)) continue;
    const auto& line = c.lines[static_cast<std::size_t>(r)].in;
    if (wait_ready(line.get(), POLLRDHUP, cut) == outcome::interrupted) return;
  }
}

}  // namespace

ncclResult_t close_down(communicator& c, ending_mode mode, interrupts cut) {
  if (mode == ending_mode::stuck) wait_for_abort(cut);
  if (mode == ending_mode::slow) sleep_for(slow_ms, cut);
  wait_quiet(c);
  c.closed = true;
  for (auto& line : c.lines) line.out.close();
  if (mode == ending_mode::peers && c.initialised) wait_for_neighbours(c, cut);
  c.lines.clear();
  return ncclSuccess;
}

ncclResult_t reclaim(const shared_communicator& c, ending_mode mode) {
  // An abort has raised the flag: nothing can cut it short now.
  const auto patience = [&](communicator& each) {
    return each.flag->raised() ? interrupts{} : each.cut();
  };
  for (const auto& each : give_up(c)) {
    if (!each->finalized) close_down(*each, mode, patience(*each));
    free_allocated(*each);
  }
  return ncclSuccess;
}

}  // namespace nccl_emulation
