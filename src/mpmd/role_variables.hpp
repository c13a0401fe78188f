// Role variables: the environment that an agent gives to an instance.
#pragma once

#include <map>
#include <string>

#include "mpmd/agent_words.hpp"

namespace manyworlds::inline v0::detail {

struct agent_place;

/// The variables by which `role_context` finds its agent.
inline constexpr const char* instance_variable = "MANYWORLDS_INSTANCE";
inline constexpr const char* node_variable = "MANYWORLDS_NODE";
inline constexpr const char* token_variable = "MANYWORLDS_INSTANCE_TOKEN";

/// Returns those, and torchrun's, in which the instances of a role are the ranks, each
/// with its index. Any program that reads them runs unchanged. What the role sets itself,
/// or the master has said (`torch_variables`), wins for torch's.
[[nodiscard]] std::map<std::string, std::string> variables_of_role(
    const agent_place& place, const agent_word& ensure, const std::string& token);

}  // namespace manyworlds::inline v0::detail
