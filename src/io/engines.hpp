// Engines: makes each engine of this machine; `make_engine` chooses between them.
#pragma once

#include <memory>

#include "io/engine.hpp"

namespace manyworlds::inline v0::detail {

/// Makes an epoll engine. Throws std::system_error if descriptors are exhausted.
[[nodiscard]] std::unique_ptr<engine> make_epoll_engine();

/// Makes an io_uring engine. Returns null where io_uring is refused, and the errno in
/// `refusal`. Throws std::system_error if descriptors are exhausted.
[[nodiscard]] std::unique_ptr<engine> make_io_uring_engine(int& refusal);

}  // namespace manyworlds::inline v0::detail
