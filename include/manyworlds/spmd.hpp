// SPMD: one program's functions on many workers. What a session's controller and its
// workers share: functions by name, values, tables. The session itself comes with the
// next version.
#pragma once

#include "manyworlds/spmd/argument.hpp"
#include "manyworlds/spmd/function_table.hpp"
#include "manyworlds/spmd/remote_function.hpp"
#include "manyworlds/spmd/value_reader.hpp"
#include "manyworlds/spmd/value_writer.hpp"
#include "manyworlds/spmd/worker.hpp"

// Weights, of which each worker reads its part
#include "manyworlds/weights/safetensors.hpp"
