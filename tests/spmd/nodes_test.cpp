// Sessions over nodes: each has an agent that starts its workers (disco A54, A56, A61,
// A63, A65).
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include "manyworlds/launch/process_options.hpp"
#include "manyworlds/launch/supervised_process.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "session_fixture.hpp"
#include "spmd/node_wire.hpp"
#include "store/raw_client.hpp"

namespace manyworlds::spmd_tests {

namespace {

template <class Body>
std::string refused_start(session_over_nodes& all, Body body) {
  try {
    all.run(body);
  } catch (const world_error& e) {
    CHECK(e.cause() == cause::not_joined);
    return e.what();
  }
  return {};
}

task<void> until_there(const session& s, int worker, worker_state state) {
  while (s.describe(worker).state != state) co_await sleep_for(1ms);
}

bool has(const std::string& text, const std::string& words) {
  CAPTURE(text);
  return text.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("workers of two nodes are one session: calls, data, worlds across them") {
  session_over_nodes all(2, 2);
  node_of_test first(all.address(), 0);
  node_of_test second(all.address(), 1);
  all.run([](session& s) -> task<void> {
    CHECK(co_await s.call(rank_here).all() == ints(0, 1, 2, 3));
    CHECK(co_await s.call(fails_on, 1000).all() == ints(4, 4, 4, 4));
    const std::vector<mesh> halves = s.split(2);
    CHECK(co_await halves[1].call(fails_on, 1000).all() == ints(2, 2));
    const std::vector<int> numbers = ints(1, 2, 3);
    const auto x = co_await s.put(const_buffer_view(numbers));
    const tensor back = co_await s.copy_from(x, 3);
    CHECK(std::ranges::equal(back.as<int>(), numbers));
    for (int k = 0; k < 4; ++k) CHECK(s.describe(k).pid > 0);
  });
  CHECK(first.end().empty());
  CHECK(second.end().empty());
}

TEST_CASE(
    "disco A56, S-e: a worker that is killed on a node is told of and replaced there") {
  session_over_nodes all(2, 1);
  node_of_test first(all.address(), 0);
  node_of_test second(all.address(), 1);
  all.run([](session& s) -> task<void> {
    const dref<part_of_model> w = co_await s.call(load_part, 10).replayable();
    const auto victim = static_cast<pid_t>(s.describe(1).pid);
    REQUIRE(victim > 0);
    ::kill(victim, SIGKILL);
    co_await until_there(s, 1, worker_state::lost);
    CHECK(has(s.describe(1).loss, "SIGKILL"));
    const mesh left = s.mesh(0);
    CHECK(co_await left.call(add_one, 1).from(0) == 2);
    co_await s.respawn(1);
    CHECK(s.describe(1).pid != victim);
    CHECK(co_await s.call(scaled_sum, w, ints(1)).from(1) == ints(21));
  });
}

TEST_CASE(
    "disco A54, S-e: an agent that is lost takes the workers of its node along, and "
    "another one "
    "brings them back") {
  session_over_nodes all(2, 2);
  node_of_test first(all.address(), 0);
  auto second = std::make_unique<node_of_test>(all.address(), 1);
  std::optional<node_of_test> again;
  all.run([&](session& s) -> task<void> {
    CHECK(co_await s.call(fails_on, 1000).from(0) == 4);
    const mesh left = s.mesh(std::vector<int>{0, 1});
    worker_thread beside("beside");
    co_await offload(beside, [&] { second = nullptr; });
    co_await until_there(s, 2, worker_state::lost);
    co_await until_there(s, 3, worker_state::lost);
    CHECK(co_await left.call(fails_on, 1000).all() == ints(2, 2));
    again.emplace(all.address(), 1);
    co_await when_all(s.respawn(2), s.respawn(3));
    CHECK(co_await s.call(fails_on, 1000).all() == ints(4, 4, 4, 4));
  });
  CHECK(again->end().empty());
}

TEST_CASE("disco A65: nodes that have not joined in time are named") {
  session_over_nodes all(3, 1, {.start = 500ms});
  node_of_test there(all.address(), 1);
  const std::string refused =
      refused_start(all, [](session&) -> task<void> { co_return; });
  CHECK(has(refused, "worker 0: "));
  CHECK(has(refused, "node 0 has not joined"));
  CHECK(has(refused, "node 2 has not joined"));
  CHECK(refused.find("node 1 has") == std::string::npos);
}

TEST_CASE(
    "disco A65: an agent with another secret does not join, and disturbs no other") {
  session_over_nodes all(1, 1);
  // Nor does one that says nothing.
  const auto address = socket_address::parse(all.address());
  REQUIRE(address.has_value());
  const manyworlds_tests::raw_client silent(*address);
  node_of_test stranger(all.address(), 0, SESSION_WORKER, "of others", 2s);
  CHECK(!stranger.end().empty());
  node_of_test right(all.address(), 0);
  all.run(
      [](session& s) -> task<void> { CHECK(co_await s.call(add_one, 1).from(0) == 2); });
}

#ifdef MWNODE
namespace {

/// A folder with a file that has the secret.
class folder_with_secret {
 public:
  folder_with_secret()
      : path_(std::filesystem::temp_directory_path() /
              ("mwnode." + std::to_string(::getpid()))) {
    REQUIRE(std::filesystem::create_directory(path_));
    std::ofstream(secret()) << secret_of_tests << '\n';
    REQUIRE(::chmod(secret().c_str(), 0600) == 0);
  }
  folder_with_secret(const folder_with_secret&) = delete;
  folder_with_secret& operator=(const folder_with_secret&) = delete;
  ~folder_with_secret() { std::filesystem::remove_all(path_); }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string logs() const { return path_ + "/logs"; }
  /// The agent of node 0.
  [[nodiscard]] process_options agent(const std::string& controller) const {
    return process_options(MWNODE, {controller, "--node", "0", "--secret-file", secret(),
                                    "--log-dir", logs(), "--", SESSION_WORKER});
  }

 private:
  [[nodiscard]] std::string secret() const { return path_ + "/secret"; }

  const std::string path_;
};

}  // namespace

TEST_CASE("mwnode joins by the secret of a file, which its workers are given too") {
  const folder_with_secret folder;
  session_over_nodes all(1, 2);
  all.run_beside(folder.agent(all.address()), [](session& s) -> task<void> {
    CHECK(co_await s.call(fails_on, 1000).all() == ints(2, 2));
  });
  for (const char* const log : {"/worker-0.log", "/worker-1.log"})
    CHECK(std::filesystem::exists(folder.logs() + log));
}

TEST_CASE(
    "S-e: an agent that stands still is replaced, and what it has started ends itself") {
  const folder_with_secret folder;
  session_over_nodes all(1, 1);
  std::optional<node_of_test> again;
  const auto body = [&](session& s) -> task<void> {
    const auto before = s.describe(0).pid;
    CHECK(all.agent().signal(SIGSTOP));
    again.emplace(all.address(), 0);
    co_await within(s.respawn(0), 30s);
    CHECK(s.describe(0).pid != before);
    CHECK(co_await s.call(add_one, 1).from(0) == 2);
    CHECK(all.agent().signal(SIGCONT));
  };
  all.run_beside(folder.agent(all.address()), body, false);
}

TEST_CASE(
    "disco A54, S-e: an agent that is killed in a call ends it, and is named; another "
    "follows") {
  const folder_with_secret folder;
  session_over_nodes all(1, 2);
  std::optional<node_of_test> again;
  const auto body = [&](session& s) -> task<void> {
    CHECK(co_await s.call(fails_on, 1000).from(0) == 2);
    auto killing = [&]() -> task<void> {
      co_await sleep_for(20ms);
      CHECK(all.agent().signal(SIGKILL));
    };
    auto calling = [&]() -> task<refusal> {
      co_return co_await refusal_of(s.call(all_but_one_enter, 1, 60'000));
    };
    const auto [nothing, told] = co_await when_all(killing(), calling());
    CHECK(told.cause == cause::peer_died);
    CHECK(told.says("node 0 is lost"));
    again.emplace(all.address(), 0);
    co_await when_all(s.respawn(0), s.respawn(1));
    CHECK(co_await s.call(fails_on, 1000).all() == ints(2, 2));
  };
  all.run_beside(folder.agent(all.address()), body, false);
}

namespace {

constexpr const char* controller_case = "the controller that is killed";
constexpr const char* controller_folder = "MANYWORLDS_TEST_FOLDER";

/// The controller of two workers, which begin to compute and write files into the folder.
process_options controller_in(const std::string& folder, bool is_over_nodes) {
  process_options how(std::filesystem::read_symlink("/proc/self/exe").string(),
                      {std::string("--test-case=") + controller_case, "--no-skip"});
  how.set(controller_folder, folder);
  if (is_over_nodes) how.set("MANYWORLDS_TEST_OVER_NODES", "1");
  how.output(process_output::none());
  return how;
}

/// Waits until there is a whole line in the file.
task<std::string> line_of(std::string file) {
  for (;;) {
    std::ifstream in(file);
    std::string line;
    if (std::getline(in, line) && !in.eof()) co_return line;
    co_await sleep_for(1ms);
  }
}

/// Whether a process that was not started here ends, at most 10 s from now.
task<bool> ends(std::string pid) {
  for (int tries = 0; tries < 1000; ++tries) {
    std::ifstream in("/proc/" + pid + "/stat");
    std::string stat;
    std::getline(in, stat);
    // It may be that its new parent never asks for it.
    if (stat.empty() || stat.find(") Z ") != std::string::npos) co_return true;
    co_await sleep_for(10ms);
  }
  co_return false;
}

task<void> compute_for_long(const session& s, std::string folder) {
  co_await s.issue(blocks_here, folder + "/1").on(1);
  co_await s.call(stays_here, folder + "/0").on(0);
}

}  // namespace

// Not a test: the next one starts it.
TEST_CASE("the controller that is killed" * doctest::skip()) {
  const char* const folder = std::getenv(controller_folder);
  if (folder == nullptr) return;
  const auto body = [=](session& s) { return compute_for_long(s, folder); };
  if (std::getenv("MANYWORLDS_TEST_OVER_NODES") == nullptr)
    return in_session(worker_kind::processes, 2, body);
  session_over_nodes all(1, 2);
  std::ofstream(std::string(folder) + "/address") << all.address() << std::endl;
  all.run(body);
}

TEST_CASE(
    "disco A63: workers that compute end when their controller is killed, and so does "
    "their agent") {
  for (const bool is_over_nodes : {false, true}) {
    CAPTURE(is_over_nodes);
    const folder_with_secret folder;
    runtime rt;
    supervised_process controller(rt, controller_in(folder.path(), is_over_nodes));
    auto whole = [&]() -> task<void> {
      co_await controller.started();
      std::optional<supervised_process> agent;
      if (is_over_nodes) {
        agent.emplace(rt, folder.agent(co_await line_of(folder.path() + "/address")));
        co_await agent->started();
      }
      const std::string first = co_await line_of(folder.path() + "/0");
      const std::string second = co_await line_of(folder.path() + "/1");
      CHECK(::kill(std::stoi(first), 0) == 0);
      CHECK(::kill(std::stoi(second), 0) == 0);
      CHECK(controller.signal(SIGKILL));
      CHECK(co_await ends(first));
      CHECK(co_await ends(second));
      if (agent) {
        const exit_reason end = co_await agent->ended();
        CHECK_MESSAGE(end.code == 1, end.text());
      }
    };
    rt.run(in_time(whole()));
  }
}

TEST_CASE("mwnode tells a controller that it cannot reach from a wrong command line") {
  runtime rt;
  auto code_of = [&](const char* controller, const char* interface) -> task<int> {
    supervised_process agent(
        rt,
        process_options(MWNODE, {controller, "--node", "0", "--insecure", "--wait", "0.1",
                                 "--interface", interface, "--", "/bin/true"}));
    co_await agent.started();
    const exit_reason end = co_await agent.ended();
    co_return end.code;
  };
  auto whole = [&]() -> task<void> {
    // RFC 6761: there is no such name.
    CHECK(co_await code_of("none.invalid:7070", "") == 1);
    CHECK(co_await code_of("127.0.0.1:1", "") == 1);
    CHECK(co_await code_of("127.0.0.1:1", "none0") == 2);
  };
  rt.run(in_time(whole()));
}
#endif

TEST_CASE("disco A65: a node has one agent: another one of its number is refused") {
  session_over_nodes all(1, 1);
  node_of_test right(all.address(), 0);
  all.run([&](session& s) -> task<void> {
    std::string refused;
    worker_thread beside("beside");
    co_await offload(beside, [&] {
      node_of_test second(all.address(), 0, SESSION_WORKER, secret_of_tests, 1s);
      refused = second.end();
    });
    CHECK(has(refused, "is taken"));
    CHECK(co_await s.call(add_one, 1).from(0) == 2);
  });
}

TEST_CASE("a program that is missing on a node, or ends at once, is an error there") {
  for (const bool is_missing : {true, false}) {
    CAPTURE(is_missing);
    session_over_nodes all(2, 1, {.start = 20s});
    node_of_test first(all.address(), 0);
    node_of_test second(all.address(), 1, is_missing ? "/no/such/program" : "/bin/true");
    const std::string refused =
        refused_start(all, [](session&) -> task<void> { co_return; });
    CHECK(has(refused, "worker 1: "));
    CHECK(has(refused, is_missing ? "/no/such/program" : "exited"));
    CHECK(refused.find("worker 0") == std::string::npos);
  }
}

namespace {

using detail::node_wire::report_head;
using detail::node_wire::report_kind;

constexpr int version = static_cast<int>(detail::node_wire::version);

/// Joins as the agent of node 0, says these, with bytes behind the last, and is
/// refused.
void pretend(const std::string& address, const std::vector<report_head>& says,
             std::size_t bytes) {
  runtime rt(guarded(secret_of_tests));
  tcp_store_options options;
  options.secret = secret_of_tests;
  tcp_store meeting(rt, address, options);
  rt.run([](runtime& of, store& at, std::vector<report_head> heads,
            std::size_t behind) -> task<void> {
    world w(of, at, {.name = detail::node_wire::node_name(0), .rank = 1, .size = 2});
    co_await w;
    const std::vector<std::byte> text(behind);
    try {
      for (std::size_t i = 0; i + 1 < heads.size(); ++i)
        co_await w.send_message(heads[i], to{0}, lane(0));
      co_await w.send_message(heads.back(), text, to{0}, lane(0));
      for (;;) co_await w.recv_message<detail::node_wire::order_head>(from{0}, lane(0));
    } catch (const world_error& e) {
      CHECK(e.cause() == cause::broken_by_user);
    }
  }(rt, meeting, says, bytes));
}

report_head report(report_kind kind, int number) {
  report_head head{};
  head.kind = kind;
  head.worker = number;
  return head;
}

}  // namespace

TEST_CASE(
    "disco A65: what is no agent, or of another version, is refused, and a right one "
    "follows") {
  session_over_nodes all(1, 1);
  std::optional<node_of_test> right;
  std::jthread pretending([&] {
    pretend(all.address(), {report(report_kind::hello, 7)}, 0);
    pretend(all.address(), {report(report_kind::started, 1)}, 0);
    pretend(all.address(), {report(report_kind::hello, version)}, 100'000);
    right.emplace(all.address(), 0);
  });
  all.run(
      [](session& s) -> task<void> { CHECK(co_await s.call(add_one, 1).from(0) == 2); });
}

TEST_CASE("an agent that says too much is lost, before any memory is taken for it") {
  // It may be lost before or after it was to start a worker.
  session_over_nodes all(1, 1, {.start = 2s});
  std::jthread pretending([&] {
    pretend(all.address(),
            {report(report_kind::hello, version), report(report_kind::ended, 0)},
            std::size_t{64} << 20);
  });
  const std::string refused =
      refused_start(all, [](session&) -> task<void> { co_return; });
  CHECK(has(refused, "a text of 67108864 bytes"));
}

TEST_CASE("an agent of another version is named where none follows it") {
  session_over_nodes all(1, 1, {.start = 1s});
  std::jthread pretending(
      [&] { pretend(all.address(), {report(report_kind::hello, 7)}, 0); });
  const std::string refused =
      refused_start(all, [](session&) -> task<void> { co_return; });
  CHECK(has(refused, "node 0 speaks version 7 of what agents are told, and not 2"));
}

TEST_CASE("disco A61: agents and workers end with their controller") {
  auto all = std::make_unique<session_over_nodes>(1, 2);
  node_of_test only(all->address(), 0);
  std::vector<pid_t> pids;
  const auto body = [&](session& s) -> task<void> {
    for (int k = 0; k < 2; ++k) pids.push_back(static_cast<pid_t>(s.describe(k).pid));
    co_return;
  };
  all->run(body);
  all = nullptr;
  CHECK(only.end().empty());
  for (const pid_t pid : pids) CHECK(::kill(pid, 0) != 0);
}

TEST_CASE("sessions over nodes are refused where they cannot be") {
  runtime rt;
  const auto start = [&](nodes how) {
    auto starting = [](runtime& of, nodes given) -> task<void> {
      (void)co_await session::start(of, given);
    };
    rt.run(starting(rt, how));
  };
  CHECK_THROWS_AS(start({.count = 0}), std::invalid_argument);
  CHECK_THROWS_AS(start({.count = 1, .workers_per_node = 0}), std::invalid_argument);
  CHECK_THROWS_AS(start({.count = 1 << 20, .workers_per_node = 1 << 20}),
                  std::invalid_argument);
  // Beyond loopback, without a secret.
  CHECK_THROWS_AS(start({.count = 1, .listen = "0.0.0.0:0"}), std::invalid_argument);
  runtime secret(guarded(secret_of_tests));
  auto unreachable = [&]() -> task<void> {
    (void)co_await session::start(secret, nodes{.count = 1, .listen = "0.0.0.0:0"});
  };
  CHECK_THROWS_WITH_AS(secret.run(unreachable()), doctest::Contains("they cannot reach"),
                       std::invalid_argument);
}

}  // namespace manyworlds::spmd_tests
