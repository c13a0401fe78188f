#include "manyworlds/world/options.hpp"

#include <fmt/format.h>

#include "manyworlds/world/view.hpp"

namespace manyworlds::inline v0::detail {

std::string validate(const world_options& o) {
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
  if (o.backend == backend_kind::nccl) {
    const device_options& d = o.on_device;
    if (o.device < 0) return "a world of backend nccl needs a device";
    if (d.most_multiprocessors < 1 || d.most_outstanding < 1) {
      return "most_multiprocessors and most_outstanding are at least 1";
    }
    if (d.create <= duration::zero() || d.blocked_call <= duration::zero() ||
        d.quiesce <= duration::zero() || d.release <= duration::zero()) {
      return "create, blocked_call, quiesce and release are lengths of time";
    }
    if (d.communicator && !d.stream) {
      return "a communicator to adopt comes with its stream";
    }
    if (d.communicator && !d.owns_communicator && !d.on_break) {
      return "a communicator that the world may not abort needs on_break";
    }
  } else if (o.device >= 0 || o.on_device.communicator) {
    return "a device is for worlds of backend nccl";
  }
  return {};
}

}  // namespace manyworlds::inline v0::detail
