// Engine kind: which interface of the kernel a runtime waits on.
#pragma once

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// `automatic` takes io_uring, or epoll where io_uring is refused.
enum class engine_kind : unsigned char { automatic, io_uring, epoll };

}  // namespace manyworlds::inline v0
