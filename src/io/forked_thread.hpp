// A thread that a forked child has the object of, but not the thread.
#pragma once

#include <memory>
#include <thread>

namespace manyworlds::inline v0 {

/// Makes `gone` an empty object without a word to the thread library, which knows no such
/// thread in this process: join would wait for ever, and detach touches the stack of a
/// thread that does not exist (ThreadSanitizer ends the process for it).
inline void forget_forked_thread(std::thread& gone) noexcept { std::construct_at(&gone); }

}  // namespace manyworlds::inline v0
