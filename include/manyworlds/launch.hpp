// Launching: programs are started and watched, without SIGCHLD, wait(-1) or anything
// else that is global. Headers alone: `launch_source.hpp` holds its implementation,
// beside `source.hpp`.
#pragma once

#include "manyworlds/io/start_step.hpp"
#include "manyworlds/launch/exit_reason.hpp"
#include "manyworlds/launch/job_events.hpp"
#include "manyworlds/launch/job_reports.hpp"
#include "manyworlds/launch/launch_agent.hpp"
#include "manyworlds/launch/launch_context.hpp"
#include "manyworlds/launch/launch_error.hpp"
#include "manyworlds/launch/launch_store.hpp"
#include "manyworlds/launch/process_guard.hpp"
#include "manyworlds/launch/process_options.hpp"
#include "manyworlds/launch/process_output.hpp"
#include "manyworlds/launch/rendezvous.hpp"
#include "manyworlds/launch/restart_policy.hpp"
#include "manyworlds/launch/round.hpp"
#include "manyworlds/launch/supervised_process.hpp"
#include "manyworlds/launch/worker_failure.hpp"
#include "manyworlds/manyworlds.hpp"
#include "manyworlds/serve.hpp"
#include "manyworlds/store/etcd_store.hpp"
