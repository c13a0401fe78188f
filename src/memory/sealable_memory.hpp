// Sealable memory: files in memory that other processes are to map, and what can refuse
// them.
#pragma once

#include <cstddef>

namespace manyworlds::inline v0 {

/// A descriptor, or -1 with errno. With sysctl vm.memfd_noexec=2 only memory that can
/// never be executed is given out; kernels before 6.3 do not know how to ask for it.
[[nodiscard]] int make_sealable_memory(const char* name) noexcept;

/// Growing a file beyond this limit sends SIGXFSZ, which kills: ask before.
[[nodiscard]] bool is_within_file_limit(std::size_t bytes) noexcept;

}  // namespace manyworlds::inline v0
