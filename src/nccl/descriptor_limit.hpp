// Descriptor limit: how near the process is to having no descriptor left.
#pragma once

#include <string>

namespace manyworlds::inline v0::nccl {

/// For the error of a communicator that could not be made, which NCCL gives no reason
/// for:
/// "; 1020 of at most 1024 descriptors are open ...". Empty if there are enough.
[[nodiscard]] std::string descriptor_limit_note();

}  // namespace manyworlds::inline v0::nccl
