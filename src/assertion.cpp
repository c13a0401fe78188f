#include "manyworlds/detail/assertion.hpp"

#include <cstdio>
#include <cstdlib>

namespace manyworlds::inline v0::detail {

void assertion_failed(const char* condition, const char* fact, const char* file,
                      int line) noexcept {
  std::fprintf(stderr, "manyworlds: %s:%d: not kept: %s (%s)\n", file, line, fact,
               condition);
  std::abort();
}

}  // namespace manyworlds::inline v0::detail
