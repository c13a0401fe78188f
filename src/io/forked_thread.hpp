// Forked thread: a thread object in a forked child, which does not have the thread.
#pragma once

#include <memory>
#include <thread>

namespace manyworlds::inline v0::detail {

/// Makes `gone` an empty object without telling the thread library, which knows no such
/// thread in this process. A join would never end, and detach touches the stack of a
/// thread that does not exist (ThreadSanitizer ends the process for it).
inline void forget_forked_thread(std::thread& gone) noexcept { std::construct_at(&gone); }

}  // namespace manyworlds::inline v0::detail
