// The engines of this machine, each by itself; `make_engine` chooses between them.
#pragma once

#include <memory>

#include "manyworlds/io/engine.hpp"

namespace manyworlds::inline v0 {

/// Throws std::system_error if descriptors are exhausted.
[[nodiscard]] std::unique_ptr<engine> make_epoll_engine();

/// Null where io_uring is refused, `refusal` then being the errno. Throws as above.
[[nodiscard]] std::unique_ptr<engine> make_io_uring_engine(int& refusal);

}  // namespace manyworlds::inline v0
