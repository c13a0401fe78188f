// Inside: tests name the library's own layers as if they stood in the public namespace.
// It is included before all else in every test (tests/meson.build).
#pragma once

namespace manyworlds::inline v0 {
namespace detail {}
using namespace detail;
}  // namespace manyworlds::inline v0
