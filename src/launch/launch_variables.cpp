// How each launcher tells a process its place. The variables stand in README.md.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "launch/abstract_address.hpp"
#include "launch/agent_reporter.hpp"
#include "launch/slurm_names.hpp"
#include "launch/variable_reader.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

using place = variable_reader::place;

constexpr std::string_view store_expected =
    "the host where the store is, with MASTER_PORT beside it";

/// A process of srun has a step. A batch script has none, although it has rank 0.
bool is_in_a_step(const variable_reader& from) {
  const auto rank = from.raw("SLURM_PROCID");
  return (rank && *rank != "0") || from.has("SLURM_STEP_ID") ||
         from.has("SLURM_STEPID") || from.has("SLURM_STEP_NODELIST");
}

std::string_view slurm_size(const variable_reader& from) {
  return from.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

bool is_slurms_own_pmix(const variable_reader& from) {
  const auto space = from.raw("PMIX_NAMESPACE");
  return space && space->starts_with("slurm.pmix");
}

/// Launchers start each other: the inner one counts. mpirun and mpiexec start their
/// daemons by srun, which leaves them its own variables.
launcher_kind find_launcher(const variable_reader& from) {
  if (from.has("MANYWORLDS_RUN_ID") && (from.has("RANK") || from.has("WORLD_SIZE")))
    return launcher_kind::mwrun;
  if (from.has("TORCHELASTIC_RUN_ID")) return launcher_kind::torchrun;
  if (from.has("RANK") || from.has("WORLD_SIZE")) return launcher_kind::by_hand;
  if (from.has("OMPI_COMM_WORLD_RANK") || from.has("OMPI_COMM_WORLD_SIZE"))
    return launcher_kind::open_mpi;
  const bool has_pmix = from.has("PMIX_RANK");
  const bool has_pmi = from.has("PMI_RANK") || from.has("PMI_SIZE");
  if (is_in_a_step(from)) {
    if (has_pmix && !is_slurms_own_pmix(from)) return launcher_kind::pmix;
    // srun --mpi=pmi2 says the same of itself in these variables.
    const bool is_of_slurm = from.raw("PMI_RANK") == from.raw("SLURM_PROCID") &&
                             from.raw("PMI_SIZE") == from.raw(slurm_size(from));
    return has_pmi && !is_of_slurm ? launcher_kind::hydra : launcher_kind::slurm;
  }
  if (has_pmix) return launcher_kind::pmix;
  return has_pmi ? launcher_kind::hydra : launcher_kind::none;
}

[[noreturn]] void disagree(const variable_reader& from, std::string_view name,
                           std::string_view other) {
  throw launch_error(
      name, from.raw(name).value_or(""),
      fmt::format("the same number as {}=\"{}\" of another launcher (unset one of them)",
                  other, from.raw(other).value_or("")));
}

/// Checks two names of the same number.
void must_agree(const variable_reader& from, std::string_view name,
                std::string_view other) {
  if (!from.has(name) || !from.has(other)) return;
  constexpr std::int64_t most = variable_reader::most_processes;
  if (from.number(name, 0, most) != from.number(other, 0, most))
    disagree(from, name, other);
}

/// Ranks that were given by hand inside of another launcher are that launcher's.
void check_other_launchers(const variable_reader& from) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> others{{
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"PMIX_RANK", "pmix.job.size"},
      {"PMI_RANK", "PMI_SIZE"},
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
      {"SLURM_PROCID", "SLURM_NTASKS"},
  }};
  for (const auto& [rank, size] : others) {
    if (rank == "SLURM_PROCID" && !is_in_a_step(from)) continue;
    if (size == "SLURM_NTASKS" && from.has("SLURM_STEP_NUM_TASKS")) continue;
    must_agree(from, "RANK", rank);
    must_agree(from, "WORLD_SIZE", size);
  }
}

void set_local(launch_context& job, const std::optional<place>& local,
               const std::optional<place>& node) {
  if (local) {
    job.local_rank = local->rank;
    job.local_size = local->size;
  }
  if (node) {
    job.node_rank = node->rank;
    job.node_count = node->size;
  }
}

/// Says where the processes are where the launcher does not: on this machine if the store
/// is on loopback, otherwise each on a machine of its own.
void guess_local(launch_context& job) {
  if (names_loopback(host_of(job.store))) {
    job.local_rank = job.rank;
    job.local_size = job.size;
    return;
  }
  job.node_rank = job.rank;
  job.node_count = job.size;
}

/// Reads the address that was given, whichever launcher there is. Returns whether one
/// was.
bool read_store(const variable_reader& from, launch_context& job) {
  if (auto given = from.endpoint("MANYWORLDS_STORE")) {
    job.place = store_place::launcher;
    job.store = std::move(*given);
    return true;
  }
  auto given = from.endpoint("MASTER_ADDR", "MASTER_PORT");
  if (!given) return false;
  // PyTorch reads it so: every other text means that there is none.
  const bool has_agents_store = from.raw("TORCHELASTIC_USE_AGENT_STORE") == "True";
  job.place = has_agents_store ? store_place::launcher : store_place::rank_zero;
  job.store = std::move(*given);
  return true;
}

void read_torchruns(const variable_reader& from, launch_context& job) {
  if (job.launcher == launcher_kind::by_hand) check_other_launchers(from);
  const place p = from.required_place("RANK", "WORLD_SIZE");
  job.rank = p.rank;
  job.size = p.size;
  if (!read_store(from, job)) throw launch_error("MASTER_ADDR", store_expected);
  const auto local = from.find_place("LOCAL_RANK", "LOCAL_WORLD_SIZE");
  const auto node = from.find_place("GROUP_RANK", "GROUP_WORLD_SIZE");
  if (local && local->size > job.size) {
    throw launch_error("LOCAL_WORLD_SIZE", *from.raw("LOCAL_WORLD_SIZE"),
                       fmt::format("at most WORLD_SIZE, which is {}", job.size));
  }
  if (!local && !node) return guess_local(job);
  set_local(job, local, node);
}

void read_open_mpi(const variable_reader& from, launch_context& job) {
  must_agree(from, "OMPI_COMM_WORLD_RANK", "PMIX_RANK");
  const place p = from.required_place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  job.rank = p.rank;
  job.size = p.size;
  set_local(job,
            from.find_place("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
            from.find_place("pmix.nodeid", "pmix.num.nodes"));
}

void read_pmix(const variable_reader& from, launch_context& job) {
  if (!from.has("PMIX_NAMESPACE"))
    throw launch_error("PMIX_NAMESPACE", "the name of the job, beside PMIX_RANK");
  const place p = from.required_place("PMIX_RANK", "pmix.job.size");
  job.rank = p.rank;
  job.size = p.size;
  set_local(job, from.find_place("pmix.lrank", "pmix.local.size"),
            from.find_place("pmix.nodeid", "pmix.num.nodes"));
}

void read_hydra(const variable_reader& from, launch_context& job) {
  const place p = from.required_place("PMI_RANK", "PMI_SIZE");
  job.rank = p.rank;
  job.size = p.size;
  set_local(job, from.find_place("MPI_LOCALRANKID", "MPI_LOCALNRANKS"), {});
}

/// Returns where rank 0 of a step hosts the store: on its first node, at the first port
/// that was reserved for the step, or at one made of the numbers of job and step.
std::string slurm_store(const variable_reader& from, const std::string& first_node) {
  if (const auto reserved = from.text("SLURM_STEP_RESV_PORTS")) {
    const auto port = first_slurm_port(*reserved);
    if (!port) {
      throw launch_error("SLURM_STEP_RESV_PORTS", *reserved,
                         "a list of ports, such as 30001-30003");
    }
    return endpoint_of(first_node, *port);
  }
  // Below the ports that the kernel gives to clients, above those of most services.
  constexpr std::int64_t first = 23000;
  constexpr std::int64_t count = 9000;
  constexpr std::int64_t most = variable_reader::most_of_a_count;
  const std::int64_t job = from.required_number("SLURM_JOB_ID", 0, most);
  const std::int64_t step = from.number("SLURM_STEP_ID", 0, UINT32_MAX).value_or(0);
  return endpoint_of(first_node,
                     static_cast<std::uint16_t>(first + (job * 31 + step) % count));
}

void read_slurm(const variable_reader& from, launch_context& job) {
  if (is_slurms_own_pmix(from)) must_agree(from, "SLURM_PROCID", "PMIX_RANK");
  const place p = from.required_place("SLURM_PROCID", slurm_size(from));
  job.rank = p.rank;
  job.size = p.size;
  const std::string list =
      from.required("SLURM_STEP_NODELIST", "the list of the step's nodes");
  const slurm_nodes nodes = expand_slurm_nodes(list);
  if (!nodes.error.empty()) throw launch_error("SLURM_STEP_NODELIST", list, nodes.error);
  const auto node_count = static_cast<std::int64_t>(nodes.names.size());
  const std::int64_t node = from.required_number("SLURM_NODEID", 0, node_count - 1);
  const std::string_view counts = from.has("SLURM_STEP_TASKS_PER_NODE")
                                      ? "SLURM_STEP_TASKS_PER_NODE"
                                      : "SLURM_TASKS_PER_NODE";
  const std::string per_node =
      from.required(counts, "the numbers of tasks of the nodes, such as 2(x3),1");
  const auto tasks = slurm_tasks_on(per_node, static_cast<std::uint32_t>(node));
  if (!tasks || *tasks == 0 || static_cast<std::int64_t>(*tasks) > job.size) {
    throw launch_error(counts, per_node,
                       fmt::format("the number of tasks, from 1 to {}, of node {} among "
                                   "others, such as 2(x3),1",
                                   job.size, node));
  }
  job.local_size = static_cast<rank_t>(*tasks);
  job.local_rank =
      static_cast<rank_t>(from.required_number("SLURM_LOCALID", 0, job.local_size - 1));
  job.node_rank = static_cast<rank_t>(node);
  job.node_count = static_cast<rank_t>(node_count);
  if (read_store(from, job)) return;
  job.store = slurm_store(from, nodes.names[0]);
  job.place = store_place::rank_zero;
  if (!from.has("pmix.job.size")) return;
  job.store = endpoint_of(nodes.names[0], 0);
  job.place = store_place::published;
}

/// Sets the store of a launcher that says nothing of one, except by PMIx.
void read_store_by_pmix(const variable_reader& from, launch_context& job) {
  if (read_store(from, job)) return;
  if (job.size == 1) return;
  if (!from.has("PMIX_NAMESPACE") || !from.has("PMIX_RANK"))
    throw launch_error("MASTER_ADDR", store_expected);
  job.place = store_place::published;
  job.store = endpoint_of(from.text("pmix.hname").value_or("127.0.0.1"), 0);
}

void read_place(const variable_reader& from, launch_context& job) {
  switch (job.launcher) {
    case launcher_kind::by_hand:
    case launcher_kind::torchrun:
    case launcher_kind::mwrun:
      return read_torchruns(from, job);
    case launcher_kind::slurm:
      return read_slurm(from, job);
    case launcher_kind::open_mpi:
      read_open_mpi(from, job);
      return read_store_by_pmix(from, job);
    case launcher_kind::pmix:
      read_pmix(from, job);
      return read_store_by_pmix(from, job);
    case launcher_kind::hydra:
      read_hydra(from, job);
      if (!read_store(from, job) && job.size > 1)
        throw launch_error("MASTER_ADDR", store_expected);
      return;
    case launcher_kind::none:
      if (from.has("MANYWORLDS_STORE")) (void)read_store(from, job);
      return;
  }
}

std::string run_id_of(const variable_reader& from, launcher_kind launcher) {
  if (auto said = from.text("MANYWORLDS_RUN_ID", "TORCHELASTIC_RUN_ID")) return *said;
  switch (launcher) {
    case launcher_kind::slurm:
      return fmt::format("slurm-{}.{}",
                         from.required("SLURM_JOB_ID", "the number of the job"),
                         from.text("SLURM_STEP_ID", "SLURM_STEPID").value_or("0"));
    case launcher_kind::open_mpi:
    case launcher_kind::pmix:
      return from.text("PMIX_NAMESPACE").value_or("none");
    default:
      return "none";
  }
}

void read_run(const variable_reader& from, launch_context& job) {
  constexpr std::int64_t most = variable_reader::most_of_a_count;
  job.run_id = run_id_of(from, job.launcher);
  constexpr std::size_t longest_run_id = 256;
  if (job.run_id.size() > longest_run_id) {
    throw launch_error(
        from.has("MANYWORLDS_RUN_ID") ? "MANYWORLDS_RUN_ID" : "TORCHELASTIC_RUN_ID",
        job.run_id, fmt::format("at most {} bytes", longest_run_id));
  }
  const auto attempt = from.number("MANYWORLDS_ATTEMPT", 0, most);
  const auto restarts = from.number("TORCHELASTIC_RESTART_COUNT", 0, most);
  job.is_attempt_agreed = attempt.has_value();
  job.attempt = static_cast<int>(attempt.value_or(restarts.value_or(0)));
  job.incarnation =
      static_cast<int>(from.number("MANYWORLDS_INCARNATION", 0, most).value_or(0));
  job.max_restarts =
      static_cast<int>(from.number("TORCHELASTIC_MAX_RESTARTS", 0, most).value_or(0));
  job.role = from.text("ROLE_NAME").value_or("default");
  const auto in_role = from.find_place("ROLE_RANK", "ROLE_WORLD_SIZE");
  job.role_rank = in_role ? in_role->rank : job.rank;
  job.role_size = in_role ? in_role->size : job.size;
}

std::optional<std::vector<std::string>> devices_of(const variable_reader& from) {
  const auto value = from.raw("CUDA_VISIBLE_DEVICES");
  if (!value) return std::nullopt;
  std::vector<std::string> devices;
  std::string_view rest = *value;
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    // CUDA sees no device from the first entry on that names none.
    if (one.empty() || one.starts_with('-') || one == "NoDevFiles") break;
    devices.emplace_back(one);
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
  }
  return devices;
}

/// What another launcher has started below mwrun inherits the variable, and is not the
/// agent's worker.
std::shared_ptr<agent_reporter> agent_of(const variable_reader& from,
                                         const launch_context& job) {
  if (job.launcher != launcher_kind::mwrun) return nullptr;
  const auto name = from.text("MANYWORLDS_AGENT");
  if (!name) return nullptr;
  if (name->size() > abstract_address::longest) {
    throw launch_error("MANYWORLDS_AGENT", *name,
                       fmt::format("at most {} bytes", abstract_address::longest));
  }
  return std::make_shared<agent_reporter>(*name, job.rank, job.incarnation);
}

}  // namespace

std::string_view name_of(launcher_kind kind) noexcept {
  switch (kind) {
    case launcher_kind::none:
      return "none";
    case launcher_kind::by_hand:
      return "by_hand";
    case launcher_kind::torchrun:
      return "torchrun";
    case launcher_kind::mwrun:
      return "mwrun";
    case launcher_kind::slurm:
      return "slurm";
    case launcher_kind::open_mpi:
      return "open_mpi";
    case launcher_kind::pmix:
      return "pmix";
    case launcher_kind::hydra:
      return "hydra";
  }
  return "?";
}

launch_context launch_context::from(const launch_variables& variables) {
  const variable_reader from(variables);
  launch_context job;
  job.launcher = find_launcher(from);
  read_place(from, job);
  MW_ASSERT(job.rank >= 0 && job.rank < job.size, "a rank is below its size");
  MW_ASSERT(job.local_rank < job.local_size && job.node_rank < job.node_count,
            "the place on the machine and that of the machine are below theirs");
  read_run(from, job);
  job.insecure = from.flag("MANYWORLDS_INSECURE");
  job.secret_file = from.text("MANYWORLDS_SECRET_FILE").value_or("");
  job.interface = from.text("MANYWORLDS_INTERFACE").value_or("");
  // torchrun sets it to nothing where it keeps no files.
  job.error_file = std::string(from.raw("TORCHELASTIC_ERROR_FILE").value_or(""));
  job.result_file = std::string(from.raw("MANYWORLDS_RESULT_FILE").value_or(""));
  job.visible_devices = devices_of(from);
  job.agent = agent_of(from, job);
  // Loopback reaches all, and is not open to the network.
  const bool is_hosted =
      job.place == store_place::rank_zero || job.place == store_place::published;
  if (is_hosted && job.is_local() && !job.insecure && !names_loopback(host_of(job.store)))
    job.store = endpoint_of("127.0.0.1", port_of(job.store).value_or(0));
  return job;
}

}  // namespace manyworlds::inline v0
