// A test case in a process of its own: for what spoils a process, or must be said before
// its first call to CUDA.
#pragma once

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <string>
#include <vector>

extern "C" char** environ;

namespace manyworlds::testing {

/// Runs the skipped test case of this name; `variable` is as in "NAME=value". Its checks
/// are the caller's.
inline void run_alone(const std::string& name, const std::string& variable) {
  const std::string which = "-tc=" + name;
  std::string self = "/proc/self/exe";
  std::vector<std::string> arguments{self, which, "--no-skip", "--minimal"};
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  std::string added = variable;
  std::vector<char*> environment{added.data()};
  for (char** each = environ; *each; ++each) environment.push_back(*each);
  environment.push_back(nullptr);

  pid_t child = 0;
  REQUIRE(::posix_spawn(&child, self.c_str(), nullptr, nullptr, argv.data(),
                        environment.data()) == 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace manyworlds::testing
