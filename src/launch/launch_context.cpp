#include "manyworlds/launch/launch_context.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "launch/environment_variables.hpp"
#include "launch/own_address.hpp"
#include "launch/pmix_session.hpp"
#include "link/secret_file.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace detail {

launch_variables variables_of_this_process() {
  launch_variables found;
  for (char** each = environ; each && *each; ++each) {
    const std::string_view line(*each);
    const std::size_t equals = line.find('=');
    // The first of two counts, as for getenv.
    if (equals != std::string_view::npos)
      found.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return found;
}

}  // namespace detail

namespace {

/// Says whether PMIx is the way to the store, if it works at all.
bool may_need_pmix(const launch_variables& variables) {
  if (!variables.contains("PMIX_NAMESPACE")) return false;
  for (const char* better : {"MANYWORLDS_STORE", "MASTER_ADDR", "MASTER_PORT", "RANK",
                             "WORLD_SIZE", "TORCHELASTIC_RUN_ID"}) {
    if (variables.contains(better)) return false;
  }
  return true;
}

bool stands_on_pmix(const launch_variables& variables) {
  if (variables.contains("OMPI_COMM_WORLD_RANK")) return true;
  return !variables.contains("SLURM_STEP_NODELIST") ||
         !variables.find("PMIX_NAMESPACE")->second.starts_with("slurm.pmix");
}

}  // namespace

launch_context launch_context::from_environment() {
  launch_variables variables = variables_of_this_process();
  std::shared_ptr<pmix_session> session;
  if (may_need_pmix(variables)) {
    std::string why;
    session = pmix_session::open(why);
    if (session) session->add_facts(variables);
    // srun says also without PMIx where the step is.
    if (!session && stands_on_pmix(variables)) {
      throw launch_error("PMIX_NAMESPACE", variables["PMIX_NAMESPACE"],
                         fmt::format("a PMIx that can be asked (but {}), or MASTER_ADDR "
                                     "and MASTER_PORT instead of it",
                                     why));
    }
  }
  launch_context job = from(variables);
  if (job.place == store_place::published) job.pmix = std::move(session);
  return job;
}

int launch_context::device() const noexcept {
  if (!visible_devices) return local_rank;
  if (visible_devices->empty()) return -1;
  return local_rank % static_cast<int>(visible_devices->size());
}

std::string launch_context::text() const {
  return fmt::format("rank {} of {} ({}, run {})", rank, size, name_of(launcher), run_id);
}

world_options launch_context::world(world_name name) const {
  world_options options;
  options.name = name;
  options.rank = rank;
  options.size = size;
  return options;
}

runtime_options launch_context::runtime() const {
  runtime_options options;
  options.secret = secret();
  options.insecure = insecure;
  const socket_address own = own_address(*this);
  options.listen = own.text();
  if (own.is_loopback() || insecure || !options.secret.empty()) return options;
  throw launch_error(
      "MANYWORLDS_SECRET_FILE",
      fmt::format("a file with the job's secret, since this process is reached at {} (or "
                  "MANYWORLDS_INSECURE=1 if that network is trusted)",
                  own.text()));
}

secret_text launch_context::secret() const {
  if (secret_file.empty()) return {};
  try {
    return read_secret_file(secret_file);
  } catch (const std::runtime_error& e) {
    throw launch_error("MANYWORLDS_SECRET_FILE", secret_file,
                       fmt::format("a file that only its owner can read and that holds "
                                   "the secret ({})",
                                   e.what()));
  }
}

}  // namespace manyworlds::inline v0
