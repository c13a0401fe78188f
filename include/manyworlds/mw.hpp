// What most programs include: the core and the parts of a server, under the short name.
#pragma once

#include "manyworlds/manyworlds.hpp"
#include "manyworlds/serve.hpp"

/// The short name that examples use.
namespace mw = manyworlds;
