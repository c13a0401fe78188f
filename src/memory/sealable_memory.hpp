// Sealable memory: files in memory that other processes map, what can refuse them, and
// what must be so before they are touched.
#pragma once

#include <fcntl.h>

#include <cstddef>
#include <cstdint>

namespace manyworlds::inline v0 {

/// Nobody cuts it off under another: that would be a signal.
inline constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
/// Nor writes to it or punches holes into it. The mapping that there is already may.
inline constexpr int pool_seals = size_seals | F_SEAL_FUTURE_WRITE;

/// A descriptor, or -1 with errno. With sysctl vm.memfd_noexec=2 only memory that can
/// never be executed is given out; kernels before 6.3 do not know how to ask for it.
[[nodiscard]] int make_sealable_memory(const char* name) noexcept;

/// Growing a file beyond this limit sends SIGXFSZ, which kills: ask before.
[[nodiscard]] bool is_within_file_limit(std::size_t bytes) noexcept;

/// Has the pages of this range there. 0, or the errno (ENOMEM, ENOSPC ...): where they
/// are touched first, a refusal would be a signal.
[[nodiscard]] int reserve_file(int descriptor, std::size_t offset,
                               std::size_t bytes) noexcept;

enum class pages_for : unsigned char { reading, writing };
/// Maps these pages by a system call, instead of a fault for every few. 0, or the errno
/// where they cannot be had; 0 too before Linux 5.14, which leaves them to the faults.
[[nodiscard]] int populate(std::byte* first, std::size_t bytes, pages_for use) noexcept;

/// What a peer's file is: to be mapped only if it is as it should be.
enum class sealed_file : unsigned char {
  as_it_should_be,
  not_sealed,
  unknown,  ///< see errno
  of_another_kind,
  of_another_size,
};
[[nodiscard]] sealed_file examine_sealed(int descriptor, int seals,
                                         std::uint64_t bytes) noexcept;

}  // namespace manyworlds::inline v0
