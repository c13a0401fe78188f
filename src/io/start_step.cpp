#include "manyworlds/io/start_step.hpp"

namespace manyworlds::inline v0 {

std::string_view describe(start_step step) noexcept {
  switch (step) {
    case start_step::none:
      return "fail";
    case start_step::output:
      return "open its output file";
    case start_step::guard:
      return "tell its guard";
    case start_step::process:
      return "make a process";
    case start_step::session:
      return "make its own session";
    case start_step::parent:
      return "tie its life to the starter's";
    case start_step::group:
      return "enter its control group";
    case start_step::folder:
      return "enter its working folder";
    case start_step::descriptors:
      return "pass its descriptors";
    case start_step::limits:
      return "set its resource limits";
    case start_step::cpus:
      return "bind it to its CPUs";
    case start_step::memory_node:
      return "bind its memory to a NUMA node";
    case start_step::execute:
      return "execute the program";
  }
  return "?";
}

std::string_view name_of(start_step step) noexcept {
  switch (step) {
    case start_step::none:
      return "none";
    case start_step::output:
      return "output";
    case start_step::guard:
      return "guard";
    case start_step::process:
      return "process";
    case start_step::session:
      return "session";
    case start_step::parent:
      return "parent";
    case start_step::group:
      return "group";
    case start_step::folder:
      return "folder";
    case start_step::descriptors:
      return "descriptors";
    case start_step::limits:
      return "limits";
    case start_step::cpus:
      return "cpus";
    case start_step::memory_node:
      return "memory_node";
    case start_step::execute:
      return "execute";
  }
  return "?";
}

}  // namespace manyworlds::inline v0
