#include "manyworlds/observe/log.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <regex>

#include "observe/parked_pair.hpp"

using namespace manyworlds;
using namespace manyworlds::observe_tests;

namespace {

/// What standard error got while `run` ran; a pipe takes a few lines without a reader.
template <class Run>
std::string standard_error_of(Run run) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const int before = ::dup(STDERR_FILENO);
  REQUIRE(::dup2(ends[1], STDERR_FILENO) >= 0);
  run();
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  ::close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t n = 0; (n = ::read(ends[0], part, sizeof part)) > 0;) {
    text.append(part, static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  return text;
}

}  // namespace

TEST_SUITE_BEGIN("log");

TEST_CASE("a line on standard error has the time, the level and the process") {
  const std::string text = standard_error_of(
      [] { stderr_log().write(log_level::warning, "left@3 {broken}"); });
  INFO(text);
  const std::string expected = R"(\d\d:\d\d:\d\d\.\d{3} warning manyworlds\[)" +
                               std::to_string(::getpid()) + R"(\]: left@3 \{broken\}\n)";
  CHECK(std::regex_match(text, std::regex(expected)));
}

TEST_CASE("every level has a name") {
  CHECK(name_of(log_level::debug) == "debug");
  CHECK(name_of(log_level::info) == "info");
  CHECK(name_of(log_level::error) == "error");
  CHECK(name_of(log_level::silent) == "silent");
}

TEST_CASE("a world's changes of state are one line each in its runtime's log") {
  parked_pair pair;
  REQUIRE(pair.is_blocked());
  CHECK(pair.log.has("info: pair@1 is up: rank 0 of 2"));
  CHECK(pair.log.has("info: pair@1 is up: rank 1 of 2"));
  pair.finish();
  CHECK(pair.log.has("info: pair@1 is closed"));
}

TEST_CASE("lines below the runtime's level are not written") {
  kept_log log;
  runtime rt(logging_to(log, log_level::error));
  memory_store store;
  auto wrong = [&]() -> task<void> {
    world_options o;
    o.name = "sizeless";
    o.size = 0;
    world w(rt, store, o);
    bool refused = false;
    try {
      co_await w;
    } catch (const world_error& e) {
      refused = e.cause() == cause::invalid_argument;
    }
    CHECK(refused);
  };
  rt.run(wrong());
  CHECK_FALSE(log.has("sizeless"));
}

TEST_SUITE_END();
