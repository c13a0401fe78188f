// Testing: machines, their network and their clock are simulated in one process, from a
// seed, so that a program tests its own server under partitions, stops and kills. Link
// `manyworlds_testing` (pkg-config manyworlds-testing, CMake manyworlds::testing).
#pragma once

#include "manyworlds/manyworlds.hpp"
#include "manyworlds/testing/simulated_process.hpp"
#include "manyworlds/testing/simulated_runtime.hpp"
#include "manyworlds/testing/simulation.hpp"
