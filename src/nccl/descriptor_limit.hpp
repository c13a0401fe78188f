// Descriptor limit: how near the process is to having no descriptor left.
#pragma once

#include <string>

namespace manyworlds::inline v0::detail::nccl {

/// Returns a note for the error of a communicator that could not be made, for which
/// NCCL gives no reason. It reads "; 1020 of at most 1024 descriptors are open ...",
/// and is empty if there are enough.
[[nodiscard]] std::string descriptor_limit_note();

}  // namespace manyworlds::inline v0::detail::nccl
