// What a launched worker is given, and what is said of one that failed (L4, L5, L7, L8,
// L36, L37).
#include "manyworlds/launch/launch_agent.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "io/descriptor.hpp"
#include "launch/error_record.hpp"
#include "launch/log_follower.hpp"
#include "launch/worker_result.hpp"
#include "launch/worker_variables.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"

using namespace manyworlds;
using namespace manyworlds::detail;
using namespace std::chrono_literals;

namespace {

round round_of_two() {
  round r;
  r.run = "job";
  r.number = 1;
  for (const int slots : {2, 3}) {
    node_description node("host", slots, slots == 2 ? "small" : "large");
    node.id = "node" + std::to_string(slots);
    r.nodes.emplace_back(std::move(node), slots);
  }
  r.assign_ranks();
  return r;
}

worker_place place_of(int local_rank) {
  worker_place place;
  place.local_rank = local_rank;
  place.store_host = "127.0.0.1";
  place.store_port = 29500;
  return place;
}

worker_failure failure_of(int rank, int code, int signal) {
  worker_failure f;
  f.rank = f.local_rank = rank;
  f.host = "host";
  f.reason.pid = 100 + rank;
  f.reason.code = code;
  f.reason.signal = signal;
  if (signal != 0) f.reason.kind = exit_kind::signaled;
  f.traceback = signal != 0 ? "Signal 9 (SIGKILL) received by PID 102" : "none";
  return f;
}

/// A file with that text, for one test.
class file_with {
 public:
  explicit file_with(const std::string& text) {
    std::string made = std::filesystem::temp_directory_path() / "record_XXXXXX";
    ::close(::mkstemp(made.data()));
    path_ = made;
    std::ofstream(path_) << text;
  }
  file_with(const file_with&) = delete;
  file_with& operator=(const file_with&) = delete;
  ~file_with() { std::filesystem::remove(path_); }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// Ends before the workers would by themselves, or by the end of their grace.
task<launch_result> in_time(task<launch_result> running) {
  launch_result end = co_await within(std::move(running), 20s);
  co_return end;
}

}  // namespace

TEST_SUITE_BEGIN("launch");

TEST_CASE("L4, L11: a worker's ranks are those of its node's place and of its role") {
  const round r = round_of_two();
  launch_options job{.program = "p"};
  const launch_variables set = variables_of_worker(job, r, r.nodes[1], place_of(2));
  CHECK(set.at("RANK") == "4");
  CHECK(set.at("WORLD_SIZE") == "5");
  CHECK(set.at("LOCAL_RANK") == "2");
  CHECK(set.at("LOCAL_WORLD_SIZE") == "3");
  CHECK(set.at("GROUP_RANK") == "1");
  CHECK(set.at("GROUP_WORLD_SIZE") == "2");
  CHECK(set.at("ROLE_NAME") == "large");
  CHECK(set.at("ROLE_RANK") == "2");
  CHECK(set.at("ROLE_WORLD_SIZE") == "3");
  CHECK(set.at("MANYWORLDS_RUN_ID") == "job");
}

TEST_CASE("L5, L7: what a worker inherits decides on some of its variables") {
  const round r = round_of_two();
  launch_options job{.program = "p"};
  CHECK(variables_of_worker(job, r, r.nodes[0], place_of(0)).at("OMP_NUM_THREADS") ==
        "1");
  job.inherited = {{"OMP_NUM_THREADS", "7"},
                   {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},
                   {"CUDA_VISIBLE_DEVICES", "4,GPU-6"}};
  job.virtual_local_rank = true;
  const launch_variables set = variables_of_worker(job, r, r.nodes[0], place_of(1));
  CHECK(!set.contains("OMP_NUM_THREADS"));
  CHECK(!set.contains("TORCH_NCCL_ASYNC_ERROR_HANDLING"));
  CHECK(set.at("CUDA_VISIBLE_DEVICES") == "GPU-6");
  CHECK(set.at("LOCAL_RANK") == "0");
  CHECK(set.at("RANK") == "1");
  job.inherited.clear();
  CHECK(variables_of_worker(job, r, r.nodes[0], place_of(1)).at("CUDA_VISIBLE_DEVICES") ==
        "1");
}

TEST_CASE("L7: HIP_VISIBLE_DEVICES wins where it is set, and each worker has a device") {
  const round r = round_of_two();
  launch_options job{.program = "p"};
  job.inherited = {{"CUDA_VISIBLE_DEVICES", "4,6"}, {"HIP_VISIBLE_DEVICES", "1, 3"}};
  job.virtual_local_rank = true;
  const launch_variables set = variables_of_worker(job, r, r.nodes[0], place_of(1));
  CHECK(set.at("CUDA_VISIBLE_DEVICES") == "3");
  CHECK(set.at("HIP_VISIBLE_DEVICES") == "3");
  job.inherited["HIP_VISIBLE_DEVICES"] = "";
  const launch_variables other = variables_of_worker(job, r, r.nodes[0], place_of(1));
  CHECK(other.at("CUDA_VISIBLE_DEVICES") == "6");
  CHECK(!other.contains("HIP_VISIBLE_DEVICES"));
  runtime rt;
  job.workers = 3;
  CHECK_THROWS_WITH_AS(launch_agent(rt, job),
                       "launch: 3 workers, and 2 visible devices for one each",
                       std::invalid_argument);
}

TEST_CASE("L8: the local rank stands for its name within an argument") {
  CHECK(with_local_rank("--gpu=${local_rank}", 12) == "--gpu=12");
  CHECK(with_local_rank("${local_rank}${local_rank}", 3) == "33");
  CHECK(with_local_rank("${rank} $local_rank", 3) == "${rank} $local_rank");
}

TEST_CASE("L37: the summary of several failures is torchrun's") {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  const std::vector<worker_failure> all{failure_of(2, 0, SIGKILL), failure_of(0, 3, 0),
                                        failure_of(1, 4, 0)};
  CHECK(failure_summary("train.sh", all) == R"(
====================================================
train.sh FAILED
----------------------------------------------------
Failures:
[0]:
  time      : 1970-01-01_00:00:00
  host      : host
  rank      : 0 (local_rank: 0)
  exitcode  : 3 (pid: 100)
  error_file: <N/A>
  traceback : none
[1]:
  time      : 1970-01-01_00:00:00
  host      : host
  rank      : 1 (local_rank: 1)
  exitcode  : 4 (pid: 101)
  error_file: <N/A>
  traceback : none
----------------------------------------------------
Root Cause (first observed failure):
[2]:
  time      : 1970-01-01_00:00:00
  host      : host
  rank      : 2 (local_rank: 2)
  exitcode  : -9 (pid: 102)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 102
====================================================)");
  CHECK(failure_summary("train.sh", {}).empty());
}

TEST_CASE("L37: the summary holds nothing that a terminal would obey") {
  worker_failure f = failure_of(0, 3, 0);
  f.host = "\x1b]0;host\a";
  f.traceback =
      "\x1b[31mred\r\x7f \xc2\x9b"
      "2J\n\tUnicode: \xc3\xa4 \xc2\xa0 \xe2\x82\xac";
  const std::string text = failure_summary("train.sh", std::span(&f, 1));
  CHECK(text.find("  host      : \\x1b]0;host\\x07\n") != std::string::npos);
  CHECK(text.find("\\x1b[31mred\\x0d\\x7f \\x9b2J\n  \tUnicode: \xc3\xa4 \xc2\xa0 "
                  "\xe2\x82\xac") != std::string::npos);
}

TEST_CASE("L36: both forms of an error file are read, and no other") {
  const auto reads = [](const std::string& text, std::string& why_not) {
    const file_with file(text);
    return read_error_record(file.path(), why_not);
  };
  std::string why_not;
  const auto plain = reads(R"({"message": "it broke", "timestamp": 12})", why_not);
  REQUIRE(plain);
  CHECK(plain->traceback == "it broke");
  CHECK(plain->time == 12);
  const auto whole = reads(
      R"({"message": {"message": "m", "extraInfo": {"py_callstack": "c", "timestamp": "13"}}})",
      why_not);
  REQUIRE(whole);
  CHECK(whole->traceback == "c");
  CHECK(whole->time == 13);
  const auto bare = reads(R"({"message": {"message": "m"}})", why_not);
  REQUIRE(bare);
  CHECK(bare->traceback == "m");
  CHECK(bare->time == 0);
  CHECK(why_not.empty());
  for (const char* odd : {"{", "[1]", "{}", R"({"message": 3})", "null"}) {
    why_not.clear();
    CHECK(!reads(odd, why_not));
    CHECK(why_not == "is no JSON object with a message");
  }
  why_not.clear();
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  CHECK(!reads(R"({"message": {"message": "m", "more": )" + deep + "}}", why_not));
  CHECK(why_not == "has too many levels");
  why_not.clear();
  CHECK(!reads("", why_not));
  CHECK(!read_error_record("/nothing/here.json", why_not));
  CHECK(why_not.empty());
}

TEST_CASE("a job that cannot be meant is refused") {
  runtime rt;
  const auto is_refused = [&](const launch_options& job) {
    CHECK_THROWS_AS(launch_agent(rt, job), std::invalid_argument);
  };
  is_refused({});
  is_refused({.program = "p", .workers = 0});
  is_refused({.program = "p", .run_id = "../x"});
  is_refused({.program = "p", .role = "a b"});
  is_refused({.program = "p", .grace = -1s});
}

TEST_CASE("a job is a task of one's own program, and ends with what happened") {
  runtime rt;
  std::vector<std::string> told;
  launch_options job{.program = "/bin/sh", .arguments = {"-c", "exit $RANK"}};
  job.workers = 2;
  job.told = [&](std::string_view line) { told.emplace_back(line); };
  launch_agent agent(rt, job);
  const launch_result end = rt.run(agent.run());
  CHECK(!end.is_success);
  REQUIRE(end.failures.size() == 1);
  CHECK(end.failures.front().rank == 1);
  CHECK(end.failures.front().code() == 1);
  CHECK(told.size() == 2);
}

TEST_CASE("a job that is launched gives what each of its workers has given") {
  runtime rt;
  launch_options job{.program = "/bin/sh"};
  job.workers = 3;
  job.arguments = {"-c",
                   "[ $RANK = 1 ] || printf 'rank %d' $RANK > $MANYWORLDS_RESULT_FILE"};
  CHECK(rt.run(launch(rt, job)) == std::vector<std::string>{"rank 0", "", "rank 2"});
  // A worker that is started again gives its own result, and long ones are cut.
  job.arguments = {"-c",
                   "if [ $MANYWORLDS_INCARNATION = 1 ]; then "
                   "echo bad > $MANYWORLDS_RESULT_FILE; exit 3; fi; "
                   "head -c 100000 /dev/zero > $MANYWORLDS_RESULT_FILE"};
  job.workers = 1;
  job.scope = restart_scope::worker;
  job.max_restarts = 1;
  CHECK(rt.run(launch(rt, job)) ==
        std::vector<std::string>{std::string(64 * 1024, '\0')});
}

TEST_CASE("nodes of one job get what the workers of all have given") {
  std::string folder = std::filesystem::temp_directory_path() / "meeting_XXXXXX";
  REQUIRE(::mkdtemp(folder.data()));
  const auto run_node = [&folder]() {
    runtime rt;
    launch_options job{.program = "/bin/sh"};
    job.workers = 2;
    job.arguments = {"-c", "printf $RANK > $MANYWORLDS_RESULT_FILE"};
    job.meeting.backend = "file";
    job.meeting.endpoint = folder;
    job.meeting.limits.min_nodes = job.meeting.limits.max_nodes = 2;
    return rt.run(launch(rt, job));
  };
  auto other = std::async(std::launch::async, run_node);
  const std::vector<std::string> here = run_node();
  CHECK(here == std::vector<std::string>{"0", "1", "2", "3"});
  CHECK(other.get() == here);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a job that is launched and fails says which worker was the first") {
  runtime rt;
  launch_options job{.program = "/bin/sh", .arguments = {"-c", "exit $RANK"}};
  job.workers = 2;
  try {
    (void)rt.run(launch(rt, job));
    FAIL("it has succeeded");
  } catch (const job_error& e) {
    CHECK(std::string(e.what()).find("rank 1 (pid ") != std::string::npos);
    CHECK(e.result().failures.size() == 1);
    CHECK(e.result().results.empty());
  }
}

TEST_CASE("a process gives its result to the launcher that takes it, and to no other") {
  launch_context alone;
  CHECK(alone.give_result("x"));
  CHECK(!alone.give_result(std::string(64 * 1024 + 1, 'x')));
  const worker_result memory;
  launch_context here;
  here.result_file = memory.path();
  CHECK(here.give_result("a longer one"));
  CHECK(here.give_result("last"));
  CHECK(memory.read() == "last");
  here.result_file = "/none/result";
  CHECK(!here.give_result("x"));
  // The number may be another process's, of another namespace or by now.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> other(std::tmpfile(),
                                                              &std::fclose);
  REQUIRE(other);
  REQUIRE(std::fputs("kept", other.get()) >= 0);
  REQUIRE(std::fflush(other.get()) == 0);
  here.result_file = "/proc/self/fd/" + std::to_string(::fileno(other.get()));
  CHECK(!here.give_result("x"));
  CHECK(std::filesystem::file_size(here.result_file) == 4);
}

TEST_CASE("a job that is told to end before it runs starts nothing") {
  runtime rt;
  std::vector<std::string> told;
  launch_options job{.program = "/bin/sleep", .arguments = {"300"}};
  job.told = [&](std::string_view line) { told.emplace_back(line); };
  launch_agent agent(rt, job);
  agent.end(SIGTERM);
  const launch_result end = rt.run(in_time(agent.run()));
  CHECK(!end.is_success);
  CHECK(end.signal == SIGTERM);
  CHECK(end.failures.empty());
  CHECK(told.empty());
}

TEST_CASE("L24: a signal also ends workers that are about to start") {
  // By the turns of the reactor between the run and the signal.
  for (int turns = 0; turns < 8; ++turns) {
    CAPTURE(turns);
    runtime rt;
    launch_options job{.program = "/bin/sleep", .arguments = {"300"}};
    job.workers = 4;
    launch_agent agent(rt, job);
    const auto body = [&]() -> task<launch_result> {
      launch_result end;
      auto running = [&]() -> task<void> { end = co_await agent.run(); };
      auto ending = [&]() -> task<void> {
        for (int i = 0; i < turns; ++i) co_await sleep_for(100us);
        agent.end(SIGINT);
      };
      co_await scope::run([&](scope& s) -> task<void> {
        s.spawn(running());
        s.spawn(ending());
        co_return;
      });
      co_return end;
    };
    CHECK(rt.run(in_time(body())).signal == SIGINT);
  }
}

TEST_CASE("L24: a signal that comes from what is told is not lost") {
  runtime rt;
  launch_options job{.program = "/bin/sleep", .arguments = {"300"}};
  launch_agent* started = nullptr;
  job.told = [&](std::string_view) { started->end(SIGTERM); };
  launch_agent agent(rt, job);
  started = &agent;
  CHECK(rt.run(in_time(agent.run())).signal == SIGTERM);
}

TEST_CASE("workers that fail at the same time are all told of") {
  runtime rt;
  launch_options job{.program = "/bin/sh", .arguments = {"-c", "sleep 0.2; exit 3"}};
  job.workers = 2;
  launch_agent agent(rt, job);
  const auto body = [&]() -> task<launch_result> {
    launch_result end;
    auto running = [&]() -> task<void> { end = co_await agent.run(); };
    auto slow = [&]() -> task<void> {
      while (agent.pid_of(0) == 0 || agent.pid_of(1) == 0) co_await sleep_for(50us);
      // The reactor finds that both have ended in one look.
      std::this_thread::sleep_for(500ms);
    };
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(running());
      s.spawn(slow());
      co_return;
    });
    co_return end;
  };
  const launch_result end = rt.run(in_time(body()));
  CHECK(end.failures.size() == 2);
}

TEST_CASE("a console that is stuck does not hold up a cancellation") {
  runtime rt;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const unique_descriptor never_read(ends[0]);
  const unique_descriptor full(ends[1]);
  const auto body = [&]() -> task<void> {
    console shown;
    const std::string much(300000, 'x');
    auto writing = [&]() -> task<void> { co_await shown.write(full.get(), much); };
    co_await when_any(writing(), sleep_for(50ms));
  };
  rt.run(body());
}

TEST_CASE("a job that is cancelled leaves no worker while its agent lives on") {
  launch_options job{.program = "/bin/sleep", .arguments = {"300"}};
  runtime rt;
  launch_agent agent(rt, job);
  const auto body = [&]() -> task<void> {
    pid_t pid = 0;
    auto look = [&]() -> task<void> {
      while ((pid = agent.pid_of(0)) == 0) co_await sleep_for(5ms);
    };
    co_await when_any(agent.run(), look());
    CHECK(agent.pid_of(0) == 0);
    while (::kill(pid, 0) == 0) co_await sleep_for(5ms);
  };
  const auto limited = [&]() -> task<void> { co_await within(body(), 20s); };
  rt.run(limited());
}

TEST_CASE("a job that is cancelled leaves no worker") {
  launch_options job{.program = "/bin/sleep", .arguments = {"300"}};
  job.workers = 2;
  pid_t pid = 0;
  {
    runtime rt;
    launch_agent agent(rt, job);
    const auto body = [&]() -> task<void> {
      auto look = [&]() -> task<void> {
        while (agent.pid_of(1) == 0) co_await sleep_for(5ms);
        pid = agent.pid_of(1);
      };
      co_await when_any(agent.run(), look());
    };
    rt.run(body());
  }
  // The runtime has waited for it.
  REQUIRE(pid > 0);
  CHECK(::kill(pid, 0) != 0);
}

TEST_SUITE_END();
