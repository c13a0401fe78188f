#include "mwrun/job_of_line.hpp"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <utility>

#include "io/system_environment.hpp"
#include "launch/cpu_topology.hpp"
#include "launch/health_endpoint.hpp"
#include "launch/worker_variables.hpp"

namespace mwrun {

namespace {

namespace fs = std::filesystem;

/// The command line has no other names.
mw::numa_binding binding_of(const std::string& said) {
  if (said == "node") return mw::numa_binding::node;
  if (said == "socket") return mw::numa_binding::socket;
  if (said == "exclusive") return mw::numa_binding::exclusive;
  return said.empty() ? mw::numa_binding::none : mw::numa_binding::core_complex;
}

/// Returns the GPUs that workers can see.
int gpus_here(const mw::launch_variables& inherited) {
  if (const auto visible = mw::detail::visible_devices(inherited))
    return static_cast<int>(visible->size());
  int count = 0;
  while (fs::exists(fmt::format("/dev/nvidia{}", count))) ++count;
  return count;
}

int workers_of(const std::string& said, const mw::launch_variables& inherited) {
  const int cpus = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (said == "cpu") return cpus;
  const int gpus = said == "gpu" || said == "auto" ? gpus_here(inherited) : 0;
  if (said == "gpu" && gpus == 0)
    throw usage_error("--nproc-per-node: \"gpu\" was given: this machine has none");
  if (said == "auto") return gpus > 0 ? gpus : cpus;
  return said == "gpu" ? gpus : std::stoi(said);
}

std::string health_endpoint_of(const command_line& line,
                               const mw::launch_variables& inherited) {
  const auto variable = inherited.find("TORCHELASTIC_HEALTH_CHECK_PORT");
  const bool is_option = !line.health_endpoint.empty();
  if (!is_option && variable == inherited.end()) return {};
  const std::string& said = is_option ? line.health_endpoint : variable->second;
  if (said.empty() || mw::detail::is_probe_address(said)) return said;
  throw usage_error(fmt::format("{}: \"{}\" was given: expected PORT or ADDRESS:PORT",
                                is_option ? "--health-endpoint" : variable->first, said));
}

/// torchrun has no option for it. What is not above 0 is none, as there.
std::optional<mw::duration> kernel_limit_of(const mw::launch_variables& inherited) {
  const auto set = inherited.find("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT");
  if (set == inherited.end() || set->second.empty()) return std::nullopt;
  const auto limit = seconds_of_text(set->second);
  if (!limit) {
    throw usage_error(
        fmt::format("{}: \"{}\" was given: expected seconds", set->first, set->second));
  }
  return *limit > mw::duration::zero() ? limit : std::nullopt;
}

std::string random_id() {
  std::random_device seed;
  return fmt::format("{:08x}", seed());
}

std::string replaced(std::string text, std::string_view macro, const std::string& by) {
  for (std::size_t at = text.find(macro); at != std::string::npos;
       at = text.find(macro, at + by.size()))
    text.replace(at, macro.size(), by);
  return text;
}

/// Returns whether the file is a program for the machine, which Python cannot read.
bool is_binary(const std::string& path) {
  char head[4] = "";
  std::ifstream file(path, std::ios::binary);
  return file.read(head, sizeof head) && std::string_view(head, sizeof head) == "\177ELF";
}

void set_command(const command_line& line, mw::launch_options& job) {
  if (line.no_python) {
    job.program = line.program;
  } else {
    const auto chosen = job.inherited.find("PYTHON_EXEC");
    if (chosen == job.inherited.end() && !line.module && is_binary(line.program)) {
      throw usage_error(
          fmt::format("{} is no Python script: give --no-python", line.program));
    }
    job.program = chosen == job.inherited.end() ? "python3" : chosen->second;
    job.arguments.emplace_back("-u");
    if (line.module) job.arguments.emplace_back("-m");
    job.arguments.push_back(line.program);
  }
  if (!line.use_env) job.arguments.emplace_back("--local-rank=${local_rank}");
  job.arguments.insert(job.arguments.end(), line.arguments.begin(), line.arguments.end());
}

void set_logs(const command_line& line, mw::launch_options& job) {
  if (line.log_dir != "/dev/null") job.log_folder = line.log_dir;
  job.output_filters = line.duplicate_stdout_filters;
  job.errors_filters = line.duplicate_stderr_filters;
  job.streams = [line](int rank, int local_rank) {
    const unsigned tee = line.tee.of(local_rank);
    const unsigned files = tee | line.redirects.of(local_rank);
    const auto is_shown = [](const std::vector<int>& filter, int number) {
      return filter.empty() ||
             std::find(filter.begin(), filter.end(), number) != filter.end();
    };
    const bool shows = is_shown(line.local_ranks_filter, local_rank) &&
                       is_shown(line.ranks_filter, rank);
    const auto to_console = [&](unsigned bit) {
      return shows && ((files & bit) == 0 || (tee & bit) != 0);
    };
    mw::worker_streams to;
    to.output_to_file = (files & stream_choice::out) != 0;
    to.errors_to_file = (files & stream_choice::err) != 0;
    to.output_to_console = to_console(stream_choice::out);
    to.errors_to_console = to_console(stream_choice::err);
    return to;
  };
  std::string form = line.log_line_prefix_template;
  const auto variable = job.inherited.find("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
  if (form.empty() && variable != job.inherited.end()) form = variable->second;
  if (form.empty()) form = "[${role_name}${local_rank}]:";
  job.prefix = [form, role = line.role](int rank, int local_rank) {
    std::string text = replaced(form, "${role_name}", role);
    text = replaced(text, "${local_rank}", std::to_string(local_rank));
    text = replaced(text, "${rank}", std::to_string(rank));
    return replaced(text, "${hostname}", mw::detail::own_host_name());
  };
}

/// Removes what is empty of a folder, and then the folder itself if it is.
void remove_empty(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator each(folder, error), end; !error && each != end;
       each.increment(error)) {
    std::error_code unknown;
    if (each->symlink_status(unknown).type() == fs::file_type::directory)
      remove_empty(each->path());
  }
  ::rmdir(folder.c_str());
}

}  // namespace

own_log_folder::own_log_folder() {
  std::error_code error;
  std::string made = fs::temp_directory_path(error) / "mwrun_XXXXXX";
  if (!error && ::mkdtemp(made.data())) path_ = made;
}

own_log_folder::~own_log_folder() {
  if (!path_.empty()) remove_empty(path_);
}

mw::launch_options job_of(const command_line& line, mw::launch_variables inherited) {
  mw::launch_options job;
  job.inherited = std::move(inherited);
  set_command(line, job);
  set_logs(line, job);
  job.workers = workers_of(line.nproc_per_node, job.inherited);
  job.role = line.role;
  const bool is_alone = line.standalone || line.max_nodes == 1;
  job.run_id = is_alone && line.rdzv_id == "none" ? random_id() : line.rdzv_id;
  job.scope = line.scope == restart_scope::worker ? mw::restart_scope::worker
                                                  : mw::restart_scope::group;
  job.max_restarts = static_cast<std::size_t>(line.max_restarts);
  if (line.max_restarts_per_rank)
    job.max_restarts_per_rank = static_cast<std::size_t>(*line.max_restarts_per_rank);
  job.restart_window = line.restart_window;
  job.grace = line.shutdown_timeout;
  job.hang_timeout = line.hang_timeout;
  job.kernel_limit = kernel_limit_of(job.inherited);
  job.store_port = static_cast<std::uint16_t>(
      is_alone && !line.standalone ? line.master_port.value_or(0) : 0);
  job.exit_barrier = line.exit_barrier_timeout;
  if (!line.secret_file.empty())
    job.variables["MANYWORLDS_SECRET_FILE"] = std::filesystem::absolute(line.secret_file);
  job.virtual_local_rank = line.virtual_local_rank;
  job.health_endpoint = health_endpoint_of(line, job.inherited);
  job.event_sink = line.event_log_handler;
  job.keep_descendants = line.keep_descendants;
  job.binding = binding_of(line.numa_binding);
  return job;
}

void print_plan(const mw::launch_options& job) {
  // The others are taken to be like this one.
  mw::round r;
  r.run = job.run_id;
  r.number = 1;
  for (std::size_t i = 0; i < job.meeting.limits.max_nodes; ++i) {
    r.nodes.emplace_back(mw::node_description(job.host, job.workers, job.role),
                         static_cast<int>(i));
  }
  r.assign_ranks();
  const mw::round_node& self =
      r.nodes.at(static_cast<std::size_t>(job.meeting.node_rank));
  const auto cpus = mw::detail::cpus_of_workers(job);
  nlohmann::json all = nlohmann::json::array();
  for (int i = 0; i < job.workers; ++i) {
    mw::detail::worker_place place;
    place.local_rank = i;
    place.store_host = job.host;
    place.store_port = job.store_port;
    nlohmann::json command = nlohmann::json::array({job.program});
    for (const std::string& each : job.arguments)
      command.push_back(mw::detail::with_local_rank(each, i));
    nlohmann::json variables = nlohmann::json::object();
    for (const auto& [name, value] : mw::detail::variables_of_worker(job, r, self, place))
      variables[name] = value;
    all.push_back({{"command", command}, {"environment", variables}});
    if (!cpus.empty()) all.back()["cpus"] = cpus.at(static_cast<std::size_t>(i));
  }
  // Arguments may be any bytes.
  fmt::print("{}\n", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace mwrun
