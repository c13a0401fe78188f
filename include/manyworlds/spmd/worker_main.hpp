// Worker main: the program of a session's worker.
#pragma once

#include "manyworlds/spmd/function_table.hpp"

namespace manyworlds::inline v0 {

/// Runs a worker that `session::start(rt, processes{...})` has started, until its session
/// ends. Returns the exit code of the program.
///
/// `int main(int argc, char** argv) { return mw::worker_main(functions, argc, argv); }`
///
/// It reads who it is from the environment, and ignores the arguments. When the
/// controller is gone, a worker cancels what it does at once; if a function still runs a
/// second later, SIGALRM ends the process. Started by hand it says so, and returns 2.
///
/// Errors: none; what goes wrong is printed to standard error, and 1 is returned.
[[nodiscard]] int worker_main(const function_table& functions, int argc,
                              const char* const* argv) noexcept;

}  // namespace manyworlds::inline v0
