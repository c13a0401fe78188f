// MPMD: jobs as graphs of roles with worlds as edges.
#pragma once

#include "manyworlds/mpmd/graph_error.hpp"
#include "manyworlds/mpmd/job_client.hpp"
#include "manyworlds/mpmd/job_graph.hpp"
#include "manyworlds/mpmd/job_placement.hpp"
#include "manyworlds/mpmd/node_resources.hpp"
#include "manyworlds/mpmd/role_context.hpp"
#include "manyworlds/mpmd/role_group.hpp"
#include "manyworlds/mpmd/role_methods.hpp"
