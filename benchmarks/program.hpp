// Program: what the command lines of mwbench and mwdevice have in common.
#pragma once

#include <CLI/CLI.hpp>

#include "member.hpp"

namespace mwbench {

/// The options of both, and the two by which the leader tells the processes that it
/// starts what they are there for. `limit` is in seconds.
void add_options_of_any(CLI::App& app, common_options& common, unsigned& limit);

/// Parses, which asks the question. Gives the exit status; what is thrown becomes a line
/// on standard error.
[[nodiscard]] int ask(CLI::App& app, const char* name, int argc, char** argv);

[[nodiscard]] inline CLI::Validator at_least(int least) {
  return CLI::Range(least, 1 << 20);
}

}  // namespace mwbench
