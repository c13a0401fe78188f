// The functions of the plugins of tests, as their callers know them.
#pragma once

#include <string>
#include <vector>

#include "manyworlds/mw.hpp"
#include "manyworlds/spmd.hpp"

namespace manyworlds::spmd_tests {

/// A value that only the plugin knows.
struct kept_words;

inline constexpr remote_function<int(int)> doubled{"plugin.doubled", alone};
inline constexpr remote_function<int(int)> doubled_slowly{"plugin.doubled_slowly", alone};
inline constexpr remote_function<int()> added_up{"plugin.added_up"};
inline constexpr remote_function<kept_words(std::string)> keep_words{"plugin.keep",
                                                                     alone};
inline constexpr remote_function<std::string(const kept_words&)> words_of{"plugin.words",
                                                                          alone};
inline constexpr remote_function<int(std::string)> throws_own{"plugin.throws", alone};
/// How often the plugin was initialised in this process.
inline constexpr remote_function<int()> times_initialised{"plugin.times", alone};

}  // namespace manyworlds::spmd_tests
