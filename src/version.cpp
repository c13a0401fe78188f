#include "manyworlds/version.hpp"

namespace manyworlds::inline v0 {

version_number linked_version() noexcept {
  return {MANYWORLDS_VERSION_MAJOR, MANYWORLDS_VERSION_MINOR, MANYWORLDS_VERSION_PATCH};
}

}  // namespace manyworlds::inline v0
