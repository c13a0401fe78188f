// Worker: this program again, as one of a session's workers.
#pragma once

/// Returns whether a session has started this process as its worker.
[[nodiscard]] bool is_worker();

/// Runs the worker. SIGUSR1 makes its next step throw. Returns the exit code.
[[nodiscard]] int run_worker(int count, const char* const* words);
