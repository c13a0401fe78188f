#include "manyworlds/world/options.hpp"

#include <fmt/format.h>

#include "manyworlds/world/view.hpp"

namespace manyworlds::inline v0 {

std::string objection_to(const world_options& o) {
  if (o.name.empty()) return "a world needs a name";
  if (o.size < 1) return fmt::format("a world of {} members", o.size);
  if (o.size > world_view::largest_size) {
    return fmt::format("a world of {} members; at most {}", o.size,
                       world_view::largest_size);
  }
  if (o.rank < 0 || o.rank >= o.size) {
    return fmt::format("rank {} in a world of {} members", o.rank, o.size);
  }
  if (o.form <= duration::zero()) return "no time is given to form the world (form)";
  if (o.suspect_after <= duration::zero() || o.broken_after < o.suspect_after) {
    return "a peer must be suspect before its silence breaks the world (suspect_after, "
           "broken_after)";
  }
  if (o.stall <= duration::zero() || o.drain < duration::zero()) {
    return "stall and drain are lengths of time";
  }
  if (o.collective_log <= duration::zero() || o.collective_break < o.collective_log) {
    return "a collective is logged before it is broken (collective_log, "
           "collective_break)";
  }
  return {};
}

}  // namespace manyworlds::inline v0
