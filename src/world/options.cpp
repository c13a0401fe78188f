#include "manyworlds/world/options.hpp"

#include <fmt/format.h>

#include "manyworlds/world/view.hpp"

namespace manyworlds::inline v0::detail {

std::string validate(const world_options& o) {
  if (o.name.empty()) return "a world needs a name";
  if (o.size < 1) return fmt::format("a world cannot have {} members", o.size);
  if (o.size > world_view::largest_size) {
    return fmt::format("a world cannot have {} members: at most {} are possible", o.size,
                       world_view::largest_size);
  }
  if (o.rank < 0 || o.rank >= o.size) {
    return fmt::format("there is no rank {} in a world of {} members", o.rank, o.size);
  }
  if (o.form <= duration::zero())
    return "the time to form the world (form) must be longer than zero";
  if (o.suspect_after <= duration::zero() || o.broken_after < o.suspect_after) {
    return "a peer must be suspect before its silence breaks the world (suspect_after, "
           "broken_after)";
  }
  if (o.stall <= duration::zero() || o.drain < duration::zero()) {
    return "stall must be longer than zero, and drain not negative";
  }
  if (o.collective_log <= duration::zero() || o.collective_break < o.collective_log) {
    return "a collective must be logged before it breaks the world (collective_log, "
           "collective_break)";
  }
  if (o.backend == backend_kind::nccl) {
    const device_options& d = o.on_device;
    if (o.device < 0) return "a world of backend nccl needs a device";
    if (d.most_multiprocessors < 1 || d.most_outstanding < 1) {
      return "most_multiprocessors and most_outstanding must be at least 1";
    }
    if (d.create <= duration::zero() || d.blocked_call <= duration::zero() ||
        d.quiesce <= duration::zero() || d.release <= duration::zero()) {
      return "create, blocked_call, quiesce and release must be longer than zero";
    }
    if (d.communicator && !d.stream) {
      return "a communicator to adopt needs its stream";
    }
    if (d.communicator && !d.owns_communicator && !d.on_break) {
      return "a communicator that the world may not abort needs on_break";
    }
  } else if (o.device >= 0 || o.on_device.communicator) {
    return "a device can be given only to a world of backend nccl";
  }
  return {};
}

}  // namespace manyworlds::inline v0::detail
