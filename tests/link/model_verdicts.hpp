// What the tests say of a model's search.
#pragma once

#include <doctest/doctest.h>

#include "link/interleaving.hpp"

namespace interleaving {

inline constexpr mutation none{};

inline void holds(const verdict& seen) {
  CHECK_MESSAGE(seen.complete, "not all of its states were seen");
  CHECK_MESSAGE(seen.failure.empty(), seen.failure);
}

}  // namespace interleaving
