// Process description: what a program is started with.
#pragma once

#include <sys/resource.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

/// A descriptor of the starter, and the number that it has in the new process.
struct passed_descriptor {
  int from = -1;
  int to = -1;
};

/// A file that the program writes by itself.
struct written_file {
  std::string path;
  bool truncates = false;
  std::vector<int> to;  ///< the numbers that it has in the new process
};

/// A soft limit. The hard one is raised only if it is lower.
struct resource_limit {
  int resource = 0;
  rlim_t value = 0;
};

struct process_description {
  std::string program;
  /// Without the program's own name, which comes first when it is executed.
  std::vector<std::string> arguments;
  /// Of the starter, or an empty one, before `changes`.
  bool inherits_environment = true;
  /// By name; nothing: unset.
  std::vector<std::pair<std::string, std::optional<std::string>>> changes;
  /// Empty: the starter's.
  std::string folder;
  std::vector<passed_descriptor> descriptors;
  std::vector<written_file> files;
  /// Takes the output of a simulated program, which has no descriptors, and its number.
  std::function<void(std::string_view, int)> simulated_output;
  std::vector<resource_limit> limits;
  /// Empty: those of the thread that starts it.
  std::vector<unsigned> cpus;
  std::optional<unsigned> memory_node;
};

}  // namespace manyworlds::inline v0::detail
