// This program again, in another environment: for what is chosen at the first call.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "support/eventually.hpp"

namespace conformance {

// Runs one test case, which is skipped otherwise; gives what waitpid does, 0 when it
// passed.
inline int run_again(const std::string& test_case,
                     const std::vector<std::pair<std::string, std::string>>& chosen) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : chosen) variables.push_back(name + "=" + value);
  for (char** each = environ; *each != nullptr; ++each) variables.emplace_back(*each);
  std::vector<std::string> words{"/proc/self/exe", "--minimal", "--no-skip", "-ts=again",
                                 "-tc=" + test_case};
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& text : texts) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
  };
  pid_t child = -1;
  REQUIRE(posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, pointers(words).data(),
                      pointers(variables).data()) == 0);
  int status = -1;
  const bool ended = manyworlds::testing::eventually(
      [&] { return waitpid(child, &status, WNOHANG) != 0; }, std::chrono::seconds{60});
  if (!ended) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  CHECK(ended);
  return status;
}

}  // namespace conformance
