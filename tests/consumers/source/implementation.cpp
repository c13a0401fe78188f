// The one source file that holds the implementation.
#include <manyworlds/source.hpp>

#include <manyworlds/launch_source.hpp>
