// What it costs to hand a call's replies to a thread that is not the dispatcher's.
#pragma once

#include <string_view>
#include <vector>

#include "questions.hpp"
#include "timing.hpp"

namespace mwbench {

/// Nanoseconds for each reply.
struct bridge_figures {
  std::string_view what;
  samples by_feed;
  /// A task that is started for each.
  samples by_tasks;
};

[[nodiscard]] std::vector<bridge_figures> measure_bridges(const common_options& common,
                                                          int count, int rounds);

}  // namespace mwbench
