// The parts of a server: supervised worlds, elastic ones, worlds by name, requests over
// a changing set of them, hosted stores.
#pragma once

#include "manyworlds/manyworlds.hpp"
#include "manyworlds/serve/accept.hpp"
#include "manyworlds/serve/call_server.hpp"
#include "manyworlds/serve/connect.hpp"
#include "manyworlds/serve/dispatcher.hpp"
#include "manyworlds/serve/hosted_store.hpp"
#include "manyworlds/serve/keep.hpp"
#include "manyworlds/serve/reply_stream.hpp"
#include "manyworlds/serve/world_manager.hpp"
