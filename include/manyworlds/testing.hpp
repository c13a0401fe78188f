// Testing: machines, their network and their clock are simulated in one process, from a
// seed, so that a program tests its own server under partitions, stops and kills. Link
// the library `manyworlds_testing`: pkg-config calls it `manyworlds-testing`, and CMake
// `manyworlds::testing`. The snippets in its headers also include `manyworlds/mw.hpp`,
// for the short name `mw`.
#pragma once

#include "manyworlds/io/start_step.hpp"
#include "manyworlds/manyworlds.hpp"
#include "manyworlds/testing/simulated_process.hpp"
#include "manyworlds/testing/simulated_program.hpp"
#include "manyworlds/testing/simulated_runtime.hpp"
#include "manyworlds/testing/simulation.hpp"
