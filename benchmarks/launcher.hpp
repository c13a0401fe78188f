// Launcher: what torchrun, mpirun and their like tell of the processes they have started.
#pragma once

#include "member.hpp"

namespace mwbench {

/// Takes the place of this process from its launcher, whichever that is. False, and
/// nothing is changed, if there is none. Throws mw::launch_error naming the variable that
/// is missing or makes no sense.
bool ask_launcher(common_options& common);

/// Throws std::runtime_error if there is a launcher and `question` is not one that it can
/// start processes for.
void refuse_launcher(const common_options& common, std::string_view question);
/// How many members there are: as many as the launcher has started, or as asked for.
/// Throws std::runtime_error if both are said and differ.
[[nodiscard]] int members_of(const common_options& common, std::string_view question,
                             int wanted, bool was_said);

}  // namespace mwbench
