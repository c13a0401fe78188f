#include "spmd/worker_invitation.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <sstream>
#include <stdexcept>

namespace manyworlds::inline v0::detail {

// The name comes last: it is the user's, and may have spaces.
std::string worker_invitation::text() const {
  const session_options& limits = seat.limits;
  // A list of no devices has to be a word, too.
  return fmt::format("4 {} {} {:d} {} {} {} {} {} {} {} {} {} {} {} ,{} {}", store,
                     listen, insecure, seat.id, seat.workers, seat.incarnation,
                     limits.start.count(), limits.suspect_after.count(),
                     limits.lost_after.count(), limits.window, limits.window_bytes,
                     limits.awake.count(), seat.on_host, name_of(limits.backend),
                     limits.devices.view(), seat.session);
}

worker_invitation worker_invitation::of(const std::string& text) {
  std::istringstream in(text);
  worker_invitation found;
  int version = 0;
  std::int64_t start = 0;
  std::int64_t suspect_after = 0;
  std::int64_t lost_after = 0;
  std::int64_t awake = 0;
  std::string backend;
  std::string devices;
  session_options& limits = found.seat.limits;
  in >> version >> found.store >> found.listen >> found.insecure >> found.seat.id >>
      found.seat.workers >> found.seat.incarnation >> start >> suspect_after >>
      lost_after >> limits.window >> limits.window_bytes >> awake >> found.seat.on_host >>
      backend >> devices >> std::ws;
  std::getline(in, found.seat.session);
  // The list stands behind a comma, so that an empty one is a word too.
  constexpr std::size_t longest_list = 63;
  const auto is_backend = [&](backend_kind each) { return backend == name_of(each); };
  const bool is_known = is_backend(backend_kind::host) || is_backend(backend_kind::nccl);
  if (!in || version != 4 || !is_known || !devices.starts_with(',') ||
      devices.size() > 1 + longest_list) {
    throw std::invalid_argument(
        std::string(variable) +
        ": not what a controller of this version gives its workers: \"" + text + "\"");
  }
  limits.start = duration(start);
  limits.suspect_after = duration(suspect_after);
  limits.lost_after = duration(lost_after);
  limits.awake = duration(awake);
  limits.backend =
      is_backend(backend_kind::nccl) ? backend_kind::nccl : backend_kind::host;
  limits.devices = devices.substr(1);
  return found;
}

}  // namespace manyworlds::inline v0::detail
