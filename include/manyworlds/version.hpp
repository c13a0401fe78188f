// The version of the library that was linked, against that of the headers.
#pragma once

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// A version of the library: major, minor and patch.
struct version_number {
  int major_part;
  int minor_part;
  int patch_part;

  friend bool operator==(const version_number&, const version_number&) = default;
};

/// The version of the headers in use. It differs from `linked_version()` when a program
/// was compiled against one installation and runs with another.
inline constexpr version_number header_version{
    MANYWORLDS_VERSION_MAJOR, MANYWORLDS_VERSION_MINOR, MANYWORLDS_VERSION_PATCH};

/// Returns the version of the library that was linked. Thread: any.
version_number linked_version() noexcept;

}  // namespace manyworlds::inline v0
