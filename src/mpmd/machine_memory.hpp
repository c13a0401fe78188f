// Machine memory: how much this process and its children may use.
#pragma once

#include <cstdint>
#include <string>

namespace manyworlds::inline v0::detail {

/// Returns the bytes of the machine, or the least limit of the control groups that this
/// process is in where that is less; groups of version 1 and 2 are known. `root` is
/// where the machine's files begin. Errors: std::system_error if the kernel does not
/// tell the machine's memory.
[[nodiscard]] std::uint64_t machine_memory(const std::string& root);

}  // namespace manyworlds::inline v0::detail
