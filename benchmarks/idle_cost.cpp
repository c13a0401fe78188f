#include "idle_cost.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "costs.hpp"
#include "timing.hpp"

namespace mwbench {

mw::task<idle_cost> sleep_and_look(double seconds) {
  co_await mw::sleep_for(settling);
  const std::uint64_t sent = segments_sent();
  const usage before = usage::now();
  const auto begin = now_ns();
  const std::chrono::duration<double> span(seconds);
  co_await mw::sleep_for(std::chrono::duration_cast<mw::duration>(span));
  const double took = us_since(begin) / 1e6;
  const usage after = usage::now();
  co_return idle_cost{
      100 * (after.cpu_seconds - before.cpu_seconds) / took,
      static_cast<double>(after.wake_ups - before.wake_ups) / took,
      // A connection that has ended meanwhile no longer counts what it had sent.
      static_cast<double>(std::max(segments_sent(), sent) - sent) / took,
  };
}

}  // namespace mwbench
