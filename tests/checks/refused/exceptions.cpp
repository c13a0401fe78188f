// flags: -fno-exceptions
// says: manyworlds needs exceptions: compile without -fno-exceptions
#include <manyworlds/mw.hpp>
