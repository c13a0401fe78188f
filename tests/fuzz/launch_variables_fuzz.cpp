// Whatever Slurm's lists and a launcher's variables hold, they are understood or refused
// by name: nothing is read past their ends, and no place lies outside of its size.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/input.hpp"
#include "launch/slurm_names.hpp"
#include "manyworlds/launch/launch_context.hpp"

using namespace manyworlds;
using fuzzing::must;

namespace {

void check_lists(std::string_view text) {
  const slurm_nodes nodes = expand_slurm_nodes(text);
  must(nodes.names.empty() != nodes.error.empty());
  must(nodes.names.size() <= slurm_nodes::most_nodes);
  for (const std::string& name : nodes.names) {
    must(!name.empty() && name.size() <= slurm_nodes::longest_name);
    must(name.find_first_of("[], \t\n") == std::string::npos);
  }
  // One name without brackets is itself.
  if (text.find_first_of("[],") == std::string_view::npos && nodes.error.empty())
    must(nodes.names.size() == 1 && nodes.names[0] == text);
  for (const std::uint32_t node : {0u, 1u, 7u, 999'999'999u})
    (void)slurm_tasks_on(text, node);
  const auto port = first_slurm_port(text);
  must(!port || *port > 0);
}

/// Lines of NAME=VALUE.
launch_variables variables_of(std::string_view text) {
  launch_variables all;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t equals = line.find('=');
    if (equals != std::string_view::npos)
      all.insert_or_assign(std::string(line.substr(0, equals)),
                           std::string(line.substr(equals + 1)));
  }
  return all;
}

void check_variables(std::string_view text) {
  const launch_variables all = variables_of(text);
  try {
    const launch_context job = launch_context::from(all);
    must(job.rank >= 0 && job.rank < job.size);
    must(job.local_rank >= 0 && job.local_rank < job.local_size);
    must(job.node_rank >= 0 && job.node_rank < job.node_count);
    must(job.role_rank >= 0 && job.role_rank < job.role_size);
    must(job.store.find(':') != std::string::npos);
    must(job.place != store_place::own || job.size == 1);
    must(job.device() >= -1);
    must(!job.text().empty());
  } catch (const launch_error& e) {
    const std::string_view said = e.what();
    must(said.starts_with(e.variable()) && said.find('\n') == std::string_view::npos);
    must(e.is_set() == all.contains(e.variable()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_lists(text);
  check_variables(text);
  return 0;
}
