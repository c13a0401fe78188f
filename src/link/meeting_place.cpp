#include "link/meeting_place.hpp"

#include "manyworlds/coro/within.hpp"

namespace manyworlds::inline v0::detail::shm {

task<std::optional<shared_parts>> meeting_place::visit(incarnation peer, invitation words,
                                                       duration limit,
                                                       std::string& why_not) {
  try {
    co_return co_await within(meet(peer, words, why_not), limit);
  } catch (const timed_out&) {
    why_not = "it did not answer on its Unix socket in time";
  }
  co_return std::nullopt;
}

}  // namespace manyworlds::inline v0::detail::shm
