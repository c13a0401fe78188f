#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <stop_token>
#include <string>
#include <utility>

#include "manyworlds/mw.hpp"
#include "manyworlds/spmd.hpp"
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

TEST_CASE("mwstat shows which worker of a session is in which call") {
  static constexpr remote_function<void()> dozes{"dozes", alone};
  const function_table functions{
      {dozes, []() -> task<void> { co_await sleep_for(std::chrono::hours(1)); }}};
  runtime rt;
  rt.serve_dumps();
  worker_thread beside("mwstat");
  std::string text;
  nlohmann::json json;
  auto whole = [&]() -> task<void> {
    session s = co_await session::start(rt, threads(1, functions));
    std::stop_source enough;
    auto calling = [&]() -> task<void> {
      try {
        co_await s.call(dozes).stop(enough.get_token());
      } catch (const call_error&) {
        // It was stopped.
      }
    };
    auto looking = [&]() -> task<void> {
      // The first look asks the worker.
      for (int tries = 0; tries < 100 && text.find("0 in dozes") == text.npos; ++tries)
        text = co_await offload(beside, [] { return mwstat(self).output; });
      json = nlohmann::json::parse(
          co_await offload(beside, [] { return mwstat(self + " --json").output; }));
      enough.request_stop();
    };
    co_await when_all(calling(), looking());
    co_await s.close();
  };
  rt.run([](task<void> all) -> task<void> {
    co_await within(std::move(all), std::chrono::minutes(1));
  }(whole()));
  INFO(text);
  CHECK(text.find(": 1 workers, 1 calls open\n  worker 0 in dozes (call 1) for ") !=
        text.npos);
  const auto& worker = json[0]["sessions"][0]["workers"][0];
  CHECK(worker["function"] == "dozes");
  CHECK(worker["in_call_ms"] > 0.0);
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
