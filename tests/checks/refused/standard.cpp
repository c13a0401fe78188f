// flags: -std=c++17
// says: manyworlds needs C++20: compile with -std=c++20 or later
#include <manyworlds/mw.hpp>
