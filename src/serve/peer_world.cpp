#include "serve/peer_world.hpp"

#include <fmt/format.h>

#include <string>

#include "manyworlds/failure.hpp"

namespace manyworlds::inline v0::detail {

void check_service(std::string_view caller, const service_name& service,
                   const world_options& options) {
  std::string wrong;
  if (service.empty()) {
    wrong = "a service needs a name";
  } else if (!options.name.empty() || options.rank != 0 || options.size != 0) {
    wrong =
        "the name, rank and size of a service's worlds are chosen by the library: leave "
        "them empty";
  } else {
    wrong = validate(peer_world_options(options, service, 0, 0));
  }
  if (wrong.empty()) return;
  throw world_error(
      failure(cause::invalid_argument, fmt::format("{}: {}", caller, wrong)));
}

world_options peer_world_options(world_options options, const service_name& service,
                                 std::uint64_t peer, rank_t rank) {
  options.name = fmt::format("{}/{:016x}", service.view(), peer);
  options.rank = rank;
  options.size = 2;
  return options;
}

}  // namespace manyworlds::inline v0::detail
