// Sealable memory: files in memory that other processes map, the reasons to refuse them,
// and the checks before they are touched.
#pragma once

#include <fcntl.h>

#include <cstddef>
#include <cstdint>

namespace manyworlds::inline v0::detail {

/// Seals that keep every process from cutting it off under another, which would be a
/// signal.
inline constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
/// Seals that also keep them from writing to it or punching holes into it. The existing
/// mapping may do both.
inline constexpr int pool_seals = size_seals | F_SEAL_FUTURE_WRITE;

/// Makes such a file. Returns a descriptor, or -1 with errno. With sysctl
/// vm.memfd_noexec=2 the kernel gives only memory that can never be executed; kernels
/// before 6.3 do not know the flag for it.
[[nodiscard]] int make_sealable_memory(const char* name) noexcept;

/// Returns true if a file may grow to `bytes`. Beyond the limit the kernel sends SIGXFSZ,
/// which kills: ask before.
[[nodiscard]] bool is_within_file_limit(std::size_t bytes) noexcept;

/// Allocates the pages of this range. Returns 0, or the errno (ENOMEM, ENOSPC ...): at
/// the first touch, a refusal would be a signal.
[[nodiscard]] int reserve_file(int descriptor, std::size_t offset,
                               std::size_t bytes) noexcept;

enum class pages_for : unsigned char { reading, writing };
/// Maps these pages by a system call, instead of a fault for every few. Returns 0, or the
/// errno where there are none; 0 too before Linux 5.14, which leaves them to the faults.
[[nodiscard]] int populate(std::byte* first, std::size_t bytes, pages_for use) noexcept;

/// The state of a peer's file. It may be mapped only if it is as it should be.
enum class sealed_file : unsigned char {
  as_it_should_be,
  not_sealed,
  unknown,  ///< see errno
  of_another_kind,
  of_another_size,
};
[[nodiscard]] sealed_file examine_sealed(int descriptor, int seals,
                                         std::uint64_t bytes) noexcept;

}  // namespace manyworlds::inline v0::detail
