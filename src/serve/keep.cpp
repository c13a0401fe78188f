#include "manyworlds/serve/keep.hpp"

#include <algorithm>

#include "manyworlds/world/runtime_core.hpp"

namespace manyworlds::inline v0 {

duration back_off::next() noexcept {
  const duration now = pause_ + runtime_.jitter(pause_ / 2);
  pause_ = std::min(longest, 2 * pause_);
  return now;
}

void back_off::was_up_for(duration span) noexcept {
  if (span >= longest) pause_ = shortest;
}

bool is_worth_another_try(const failure& f) noexcept {
  switch (f.cause) {
    case cause::invalid_argument:
    case cause::size_disagrees:
    case cause::wrong_version:
    case cause::forked:
      return false;
    case cause::wrong_secret:
      // Refused by rank 0, whose secret counts. Any other that was refused may yet be
      // replaced by the right one.
      return f.rank != 0;
    default:
      return true;
  }
}

}  // namespace manyworlds::inline v0
