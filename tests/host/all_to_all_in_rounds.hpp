// All to all in rounds: an algorithm that src/EXTENDING.md adds to the table.
#pragma once

#include "host/collective_algorithms.hpp"

namespace manyworlds::inline v0::detail::host {

/// Exchanges one part in each round, so that a member has two messages under way.
inline task<void> all_to_all_in_rounds(schedule& x) {
  const collective_shape& s = x.shape();
  for (rank_t d = 1; d < x.size(); ++d) {
    x.receive(x.after(-d), s.out_parts.of(s.out, x.after(-d)));
    x.send(x.after(d), s.in_parts.of(s.in, x.after(d)));
    co_await x.settled();
  }
  const auto from = s.in_parts.of(s.in, x.self());
  co_await copy_slices(x, from, s.out_parts.of(s.out, x.self()));
}

}  // namespace manyworlds::inline v0::detail::host
