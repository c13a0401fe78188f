// Refused memory: what becomes of a step that finds none.
#pragma once

namespace manyworlds::testing {

/// Refuses one of this thread's allocations, with std::bad_alloc: the first, or the one
/// behind `before` others. A program of tests that uses it adds `refused_memory` of
/// tests/meson.build, which is empty under the thread sanitizer.
class refused_memory {
 public:
  explicit refused_memory(int before = 0) noexcept;
  refused_memory(const refused_memory&) = delete;
  refused_memory& operator=(const refused_memory&) = delete;
  ~refused_memory();

  /// Returns whether the allocation was asked for, and refused.
  [[nodiscard]] static bool was_asked() noexcept;
  /// Returns how many allocations are still granted before the refused one.
  [[nodiscard]] static int left_before() noexcept;
};

}  // namespace manyworlds::testing
