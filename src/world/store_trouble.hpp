// Store trouble: warns of a store that does not answer, while it is waited for.
#pragma once

#include <string>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/store/store.hpp"

namespace manyworlds::inline v0::detail {

class runtime_core;

/// Returns what keeps a store from answering, with its address; empty if it answers.
[[nodiscard]] std::string trouble_with(const store& st);

/// Warns in the log within the first second that a store does not answer, and again
/// whenever the reason changes: "WHO: the store tcp://... cannot be reached: ...". Runs
/// until it is cancelled, beside the task that asks the store. Lifetime: the store must
/// outlive it.
[[nodiscard]] task<void> tell_of_trouble(runtime_core& rt, std::string who,
                                         const store& st);

}  // namespace manyworlds::inline v0::detail
