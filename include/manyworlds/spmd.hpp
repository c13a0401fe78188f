// SPMD: one program's functions on many workers, which a session's controller drives.
#pragma once

#include "manyworlds/spmd/any_function.hpp"
#include "manyworlds/spmd/any_value.hpp"
#include "manyworlds/spmd/argument.hpp"
#include "manyworlds/spmd/call_error.hpp"
#include "manyworlds/spmd/dref.hpp"
#include "manyworlds/spmd/function_table.hpp"
#include "manyworlds/spmd/mesh.hpp"
#include "manyworlds/spmd/plugin.hpp"
#include "manyworlds/spmd/remote_call.hpp"
#include "manyworlds/spmd/remote_function.hpp"
#include "manyworlds/spmd/session.hpp"
#include "manyworlds/spmd/session_event.hpp"
#include "manyworlds/spmd/session_options.hpp"
#include "manyworlds/spmd/value_reader.hpp"
#include "manyworlds/spmd/value_writer.hpp"
#include "manyworlds/spmd/worker.hpp"
#include "manyworlds/spmd/worker_main.hpp"

// Weights, of which each worker reads its part
#include "manyworlds/weights/safetensors.hpp"
#include "manyworlds/weights/weight_files.hpp"
