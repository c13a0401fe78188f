#include "mpmd/role_variables.hpp"

#include <utility>

#include "mpmd/agent_instance.hpp"
#include "mpmd/job_store.hpp"

namespace manyworlds::inline v0::detail {

static std::string set_or(const std::map<std::string, std::string>& set, const char* name,
                          std::string otherwise) {
  const auto at = set.find(name);
  return at == set.end() ? std::move(otherwise) : at->second;
}

std::map<std::string, std::string> variables_of_role(const agent_place& place,
                                                     const agent_word& ensure,
                                                     const std::string& token) {
  const auto& own = ensure.spec.variables;
  const std::string index = std::to_string(ensure.instance.index);
  std::map<std::string, std::string> all;
  all["RANK"] = set_or(own, "RANK", index);
  all["WORLD_SIZE"] = set_or(own, "WORLD_SIZE", set_or(own, "ROLE_WORLD_SIZE", "1"));
  all["LOCAL_RANK"] = set_or(own, "LOCAL_RANK", "0");
  all["LOCAL_WORLD_SIZE"] = set_or(own, "LOCAL_WORLD_SIZE", "1");
  all["GROUP_RANK"] = set_or(own, "GROUP_RANK", index);
  all["GROUP_WORLD_SIZE"] = set_or(own, "GROUP_WORLD_SIZE", all["WORLD_SIZE"]);
  all["TORCHELASTIC_RUN_ID"] = set_or(own, "TORCHELASTIC_RUN_ID", place.job);
  all["TORCHELASTIC_RESTART_COUNT"] =
      set_or(own, "TORCHELASTIC_RESTART_COUNT",
             std::to_string(ensure.incarnation > 0 ? ensure.incarnation - 1 : 0));
  // Rank 0 hosts the store of torch: no agent's is at MASTER_PORT.
  all["TORCHELASTIC_USE_AGENT_STORE"] =
      set_or(own, "TORCHELASTIC_USE_AGENT_STORE", "False");
  const auto set_unless_inherited = [&](const char* name) {
    if (!own.contains(name) && !place.inherited.contains(name)) all[name] = "1";
  };
  set_unless_inherited("TORCH_NCCL_ASYNC_ERROR_HANDLING");
  // Several on a node would each start a thread for each of its CPUs. OpenMP counts those
  // alone to which an instance is bound.
  if (all["LOCAL_WORLD_SIZE"] != "1" && ensure.spec.cpus.empty())
    set_unless_inherited("OMP_NUM_THREADS");
  all["ROLE_NAME"] = ensure.instance.role;
  all["ROLE_RANK"] = index;
  all["MANYWORLDS_RUN_ID"] = place.job;
  all["MANYWORLDS_INCARNATION"] = std::to_string(ensure.incarnation);
  all["MANYWORLDS_STORE"] = way_to(place.store);
  if (is_in_etcd(place.store)) all[job_store_variable] = place.store;
  if (!place.secret_file.empty()) all["MANYWORLDS_SECRET_FILE"] = place.secret_file;
  if (place.insecure) all["MANYWORLDS_INSECURE"] = "1";
  if (!place.interface.empty()) all["MANYWORLDS_INTERFACE"] = place.interface;
  all[instance_variable] = ensure.instance.text();
  all[node_variable] = place.node;
  all[token_variable] = token;
  return all;
}

}  // namespace manyworlds::inline v0::detail
