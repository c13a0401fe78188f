// Start step: what was being done when a program could not be started.
#pragma once

#include <cstdint>
#include <string_view>

#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0 {

/// The steps of a start, in their order. The first three are taken by the starter, the
/// others by the new process before the program runs in it.
enum class start_step : std::uint8_t {
  none,         ///< nothing failed
  output,       ///< opening the file that takes the output
  guard,        ///< telling the guard, which may have been killed
  process,      ///< making the process
  session,      ///< making its own session
  parent,       ///< asking for the signal at the starter's end
  group,        ///< entering its control group
  folder,       ///< changing to its working folder
  descriptors,  ///< passing the descriptors that it gets, and no others
  limits,       ///< setting its resource limits
  cpus,         ///< binding it to its CPUs
  memory_node,  ///< binding its memory to a NUMA node
  execute,      ///< finding and executing the program
};

/// Returns words that continue "cannot ...", such as "enter its working folder".
[[nodiscard]] std::string_view describe(start_step step) noexcept;

/// Returns the name of the enumerator.
[[nodiscard]] std::string_view name_of(start_step step) noexcept;

}  // namespace manyworlds::inline v0
