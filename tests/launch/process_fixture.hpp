// A runtime that starts programs, and what they leave.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "../world/world_fixture.hpp"
#include "io/process_list.hpp"
#include "manyworlds/launch.hpp"
#include "support/entries.hpp"
#include "support/eventually.hpp"

namespace manyworlds::launch_tests {

using namespace std::chrono_literals;
using testing::eventually;
using world_tests::node;

/// The program that the tests start.
inline const char* const subject = LAUNCH_SUBJECT;

inline process_options orders(std::vector<std::string> words) {
  return process_options(subject, std::move(words));
}

/// A folder that goes with its test.
class own_folder {
 public:
  own_folder() {
    char name[] = "/tmp/mw-launch-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path_ = name;
  }
  own_folder(const own_folder&) = delete;
  own_folder& operator=(const own_folder&) = delete;
  ~own_folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string file(const std::string& name) const {
    return path_ + '/' + name;
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// The number of the process that says it in that file.
inline pid_t pid_in(const std::string& path) {
  REQUIRE_MESSAGE(eventually([&] { return std::filesystem::exists(path); }), path);
  return static_cast<pid_t>(std::stol(content_of(path)));
}

inline bool lives(pid_t pid) {
  const auto seen = look_at_process(pid);
  return seen && seen->is_alive();
}
inline bool ends(pid_t pid, duration limit = 5s) {
  return eventually([&] { return !lives(pid); }, limit);
}

/// Zombies of this process.
inline std::size_t unreaped() {
  std::size_t count = 0;
  for (const listed_process& each : list_processes()) {
    if (each.parent == ::getpid() && !each.is_alive()) ++count;
  }
  return count;
}

/// Starts it, and gives the reason of its end.
inline exit_reason run_to_end(node& n, process_options how) {
  supervised_process one(n.rt, std::move(how));
  auto wait = [&]() -> task<exit_reason> { co_return co_await one.ended().within(20s); };
  return n.run(wait());
}

/// What it writes.
inline std::string output_of(node& n, process_options how) {
  std::string all;
  how.output(
      lines([&](const output_line& line) { all += std::string(line.text) + '\n'; }));
  const exit_reason end = run_to_end(n, std::move(how));
  CHECK_MESSAGE(end.kind != exit_kind::not_started, end.text());
  return all;
}

}  // namespace manyworlds::launch_tests
