#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "observe/parked_pair.hpp"
#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>
#endif

using namespace manyworlds;
using namespace manyworlds::observe_tests;

TEST_SUITE_BEGIN("mwstat");

#if defined(MANYWORLDS_MWSTAT) && __has_include(<nlohmann/json.hpp>)

namespace {

struct ran {
  int status;
  std::string output;
};

/// Runs `mwstat` with these arguments; its errors come with its output.
ran mwstat(const std::string& arguments) {
  const std::string command = "timeout 30 " MANYWORLDS_MWSTAT " " + arguments + " 2>&1";
  std::FILE* pipe = ::popen(command.c_str(), "re");
  REQUIRE(pipe);
  ran r{};
  char part[4096];
  while (const std::size_t n = std::fread(part, 1, sizeof part, pipe))
    r.output.append(part, n);
  r.status = ::pclose(pipe);
  return r;
}

const std::string self = std::to_string(::getpid());

}  // namespace

TEST_CASE("mwstat prints what a process with a stuck reactor waits for") {
  parked_pair pair;
  REQUIRE(pair.is_blocked());
  pair.left.serve_dumps();
  const ran text = mwstat(self);
  INFO(text.output);
  CHECK(text.status == 0);
  const std::string line = "parked_pair.hpp:" + std::to_string(pair.receive_line);
  CHECK(text.output.find(line) != std::string::npos);
}

TEST_CASE("mwstat --json gives one object for every runtime that serves dumps") {
  parked_pair pair;
  REQUIRE(pair.is_blocked());
  pair.left.serve_dumps();
  pair.right.serve_dumps();
  const ran answer = mwstat(self + " --json");
  INFO(answer.output);
  REQUIRE(answer.status == 0);
  const auto all = nlohmann::json::parse(answer.output);
  REQUIRE(all.size() == 2);
  const auto& left = all[0];
  CHECK(left["pid"] == ::getpid());
  CHECK(left["reactor"]["answers"] == false);
  CHECK(left["service"]["answers"] == true);
  REQUIRE(left["worlds"].size() == 1);
  const auto& w = left["worlds"][0];
  CHECK(w["name"] == "pair");
  CHECK(w["state"] == "up");
  CHECK(w["transfers"].is_null());
  CHECK(w["members"].size() == 2);
  CHECK(w["members"][1]["left"] == false);
  REQUIRE(w["pending"].size() == 1);
  CHECK(w["pending"][0]["kind"] == "recv");
  CHECK(w["pending"][0]["line"] == pair.receive_line);
  CHECK(all[1]["worlds"][0]["transfers"]["transport"] == "shm");
}

TEST_CASE("mwstat says what to do when a process serves no dumps") {
  const ran silent = mwstat(self);
  CHECK(silent.status != 0);
  CHECK(silent.output ==
        "mwstat: pid " + self + " serves no dumps: call runtime::serve_dumps() there\n");
  const ran missing = mwstat("4194304");
  CHECK(missing.status != 0);
  CHECK(missing.output == "mwstat: there is no process 4194304\n");
}

#else

TEST_CASE("mwstat (skipped: built without CLI11 or nlohmann_json)" * doctest::skip()) {}

#endif

TEST_SUITE_END();
