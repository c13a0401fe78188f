// Job line: the options by which a command finds a job.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "mpmd/job_address.hpp"
#include "mpmd/job_meeting.hpp"

namespace mwgraph {

struct job_line {
  std::string job;
  std::string folder;
  std::string store;
  std::string secret_file;
  bool insecure = false;
};

/// Adds JOB, --folder, --store, --secret-file and --insecure.
void add_job_line(CLI::App& sub, job_line& line);
/// Adds all of these but JOB.
void add_place_of_job(CLI::App& sub, job_line& line);

using manyworlds::detail::job_address;

/// Returns where the job is. Errors: usage_error.
[[nodiscard]] job_address find_job(const job_line& line);
[[nodiscard]] manyworlds::tcp_store_options client_of(const job_address& job);

/// Says how a job stands: a master, or what it has told last of one that is over.
using status_source = std::function<manyworlds::task<std::optional<std::string>>()>;

/// Returns what a job of this machine that is over has told last; nothing of another one.
[[nodiscard]] std::optional<std::string> end_of(const job_line& line);

/// Runs a task with the job's meeting to its end, and returns what it gives.
int ask_job(
    const job_line& line,
    const std::function<manyworlds::task<int>(manyworlds::detail::job_meeting&)>& asked);
/// Does the same for what needs no more than to know how the job stands, or has ended.
int ask_status(const job_line& line,
               const std::function<manyworlds::task<int>(status_source)>& asked);

}  // namespace mwgraph
