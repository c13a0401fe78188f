// What workers tell their agent, and what hostile, slow and absent ends do (L29, L41).
#include "launch/worker_reports.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "io/system_environment.hpp"
#include "launch/abstract_address.hpp"
#include "launch/agent_reporter.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/launch/launch_context.hpp"
#include "process_fixture.hpp"

namespace manyworlds::launch_tests {

using namespace manyworlds::detail;

namespace {

class heard final : public worker_reports_listener {
 public:
  void world_changed(const worker_account&, const world_news& news) override {
    worlds.push_back(news);
  }
  void has_overrun(const worker_account& who, const std::string& what) override {
    overruns.push_back(std::to_string(who.rank) + " " + what);
  }
  void was_reported(const worker_account&, const worker_report& what) override {
    reported.push_back(what);
    if (then) then();
  }

  std::vector<world_news> worlds;
  std::vector<std::string> overruns;
  std::vector<worker_report> reported;
  std::function<void()> then;
};

/// An agent with the account of rank 0, which this process has.
class hearing_agent {
 public:
  hearing_agent()
      : reports(access::core(at.rt).user(), told), running_(at.rt.start(reports.run())) {
    begin(0);
  }
  hearing_agent(const hearing_agent&) = delete;
  hearing_agent& operator=(const hearing_agent&) = delete;
  ~hearing_agent() {
    at.rt.stop();
    (void)running_.wait_for(20s);
  }

  template <class F>
  auto ask(F f) {
    auto asking = [&]() -> task<decltype(f())> { co_return f(); };
    return at.run(asking());
  }
  void begin(int rank, pid_t pid = ::getpid()) {
    ask([&] {
      reports.begin(rank, 1, pid);
      return 0;
    });
  }
  template <class F>
  [[nodiscard]] bool until(F f) {
    return eventually([&] { return ask([&] { return f(*reports.of(0)); }); });
  }

  /// What a worker of that rank is started as.
  [[nodiscard]] launch_context job(int rank = 0) const {
    launch_context made = launch_context::from({{"MANYWORLDS_RUN_ID", "run"},
                                                {"RANK", std::to_string(rank)},
                                                {"WORLD_SIZE", "2"},
                                                {"LOCAL_RANK", std::to_string(rank)},
                                                {"LOCAL_WORLD_SIZE", "2"},
                                                {"MASTER_ADDR", "127.0.0.1"},
                                                {"MASTER_PORT", "1"},
                                                {"MANYWORLDS_INCARNATION", "1"},
                                                {"MANYWORLDS_AGENT", reports.address()}});
    REQUIRE(made.agent);
    return made;
  }

  heard told;
  node at;
  worker_reports reports;

 private:
  started<void> running_;
};

/// A connection of its own, which says what no worker would.
class stranger {
 public:
  explicit stranger(const std::string& name)
      : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), "socket") {
    const abstract_address to(name);
    REQUIRE(::connect(socket_.get(), to.get(), to.length) == 0);
    const timeval limit{20, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  void say(std::span<const std::byte> message) const {
    (void)::send(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL);
  }
  void say(const worker_report& report) const { say(encoded(report)); }
  [[nodiscard]] bool is_closed() const {
    char byte = 0;
    ssize_t got = 0;
    do {
      got = ::recv(socket_.get(), &byte, 1, 0);
    } while (got < 0 && errno == EINTR);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }

 private:
  unique_descriptor socket_;
};

std::vector<worker_report> one_of_each() {
  worker_beat beat;
  beat.turns = 7;
  beat.waits.emplace();
  beat.waits->kind = operation_kind::all_reduce;
  beat.waits->world = "kv";
  beat.waits->peer_pid = 12;
  beat.waits->peer_host = "host";
  beat.waits->age = 3s;
  world_news news;
  news.kind = world_event_kind::suspect;
  news.world = "kv";
  news.epoch = 3;
  news.size = 4;
  news.pid = 12;
  news.host = "host";
  return {worker_hello{3, 2},
          beat,
          worker_progress{9},
          news,
          deadline_begun{1, 30s, "load"},
          deadline_ended{1},
          reported_event{"epoch", {{"loss", "0.1"}, {"step", "2"}}},
          reported_metric{"tokens", 2.5},
          reported_span{"load", 5ms},
          worker_rest{},
          dump_written{},
          state_again{}};
}

}  // namespace

TEST_SUITE_BEGIN("launch");

TEST_CASE("a report arrives as it was told, and no part of it reads as one") {
  for (const worker_report& each : one_of_each()) {
    const bytes message = encoded(each);
    CAPTURE(each.index());
    CHECK(encoded(decoded_report(message)) == message);
    for (std::size_t size = 0; size < message.size(); ++size)
      CHECK_THROWS_AS((void)decoded_report(std::span(message).first(size)), wire_error);
    bytes longer = message;
    longer.push_back(std::byte{0});
    CHECK_THROWS_AS((void)decoded_report(longer), wire_error);
  }
  for (int kind = static_cast<int>(std::variant_size_v<worker_report>); kind < 256;
       ++kind)
    CHECK_THROWS_AS((void)decoded_report(bytes{static_cast<std::byte>(kind)}),
                    wire_error);
}

TEST_CASE("a report of any bytes is read or refused, and nothing else happens") {
  std::uint32_t seed = 1;
  for (int i = 0; i < 20000; ++i) {
    const auto all = one_of_each();
    bytes message = encoded(all[static_cast<std::size_t>(i) % all.size()]);
    for (int flips = 0; flips < 3; ++flips) {
      seed = seed * 1664525 + 1013904223;
      message[seed % message.size()] ^= static_cast<std::byte>(seed >> 24);
    }
    try {
      const worker_report read = decoded_report(message);
      CHECK(encoded(read).size() <= longest_report);
    } catch (const wire_error&) {
      continue;
    }
  }
}

TEST_CASE("long texts are cut, and fields beyond the limit left out") {
  job_fields fields;
  for (int i = 0; i < 100; ++i) fields[std::to_string(i)] = "x";
  const bytes message = encoded(reported_event{std::string(5000, 'n'), fields});
  const auto read = std::get<reported_event>(decoded_report(message));
  CHECK(read.name.size() == longest_report_name);
  CHECK(read.fields.size() == most_report_fields);
}

TEST_CASE("a job reports events, metrics, spans and progress to its agent") {
  hearing_agent a;
  const launch_context job = a.job();
  job.event("epoch", {{"loss", "0.1"}});
  job.metric("tokens", 2.5);
  { const job_timer timed = job.timed("load"); }
  job.progress(17);
  CHECK(a.until([&](const worker_account& of) {
    return of.progress == 17u && a.told.reported.size() == 3;
  }));
  a.ask([&] {
    CHECK(std::get<reported_event>(a.told.reported[0]).fields.at("loss") == "0.1");
    CHECK(std::get<reported_metric>(a.told.reported[1]).value == 2.5);
    CHECK(std::get<reported_span>(a.told.reported[2]).name == "load");
    return 0;
  });
}

TEST_CASE("while a job runs it beats, and its turns stand still while a task blocks") {
  hearing_agent a;
  const launch_context job = a.job();
  std::atomic<bool> blocks{false};
  std::atomic<bool> ends{false};
  std::thread worker([&] {
    runtime rt;
    auto work = [&]() -> task<void> {
      while (!ends) {
        while (blocks) std::this_thread::sleep_for(1ms);
        co_await sleep_for(10ms);
      }
    };
    CHECK(job.run(rt, work()) == 0);
  });
  CHECK(a.until([](const worker_account& of) { return of.turns >= 2; }));
  blocks = true;
  // A turn that was asked for before may be answered.
  std::this_thread::sleep_for(600ms);
  const auto before = a.ask([&] { return *a.reports.of(0); });
  const std::uint64_t turns = before.turns;
  const time_point beat = before.last_beat.value_or(time_point());
  CHECK(a.until([&](const worker_account& of) { return of.last_beat > beat + 500ms; }));
  CHECK(a.ask([&] { return a.reports.of(0)->turns; }) <= turns + 1);
  blocks = false;
  CHECK(a.until([&](const worker_account& of) { return of.turns > turns + 1; }));
  ends = true;
  worker.join();
  CHECK(a.until([](const worker_account& of) { return of.is_at_rest; }));
}

TEST_CASE("worlds that form and break are told with epoch, cause and process") {
  hearing_agent a;
  const launch_context job = a.job();
  memory_store store;
  std::atomic<bool> ends{false};
  std::thread worker([&] {
    runtime rt;
    auto work = [&]() -> task<void> {
      world w(rt, store, {.name = "kv", .rank = 0, .size = 2});
      co_await w;
      while (!ends) co_await sleep_for(10ms);
    };
    CHECK(job.run(rt, work()) == 0);
  });
  {
    node b;
    world w(b.rt, store, {.name = "kv", .rank = 1, .size = 2});
    const failure f = b.run(world_tests::forming(w));
    REQUIRE_MESSAGE(!f, f.text());
    CHECK(a.until([](const worker_account& of) {
      const auto found = of.worlds.find("kv");
      return found != of.worlds.end() && found->second.kind == world_event_kind::formed &&
             found->second.epoch == 1 && found->second.size == 2;
    }));
  }
  CHECK(a.until([](const worker_account& of) {
    const auto found = of.worlds.find("kv");
    return found->second.kind == world_event_kind::broken;
  }));
  ends = true;
  worker.join();
}

TEST_CASE("a process of another host is no worker of this one, whatever its pid") {
  hearing_agent a;
  const std::string host = own_host_name();
  const auto rank_of = [&](const std::string& on) {
    return a.ask([&] { return a.reports.rank_of(::getpid(), on); });
  };
  // Peers know the front of a long name.
  CHECK(rank_of(host.substr(0, 63)) == 0);
  // "node1" is not "node10".
  CHECK(rank_of(host.substr(0, host.size() - 1)) < 0);
  CHECK(rank_of("") < 0);
  CHECK(rank_of("one.example") < 0);
  // They would else be one that most of a cut off worker's silent peers are.
  CHECK(rank_of("one.example") != rank_of("two.example"));
}

TEST_CASE("a member that broke its world by silence stays suspect until it forms again") {
  known_worlds worlds;
  known_suspects suspects;
  world_news news;
  news.world = "kv";
  news.pid = 20;
  const auto note = [&](world_event_kind kind, cause why = cause::none) {
    news.kind = kind;
    news.why = why;
    note_news(news, 2, worlds, suspects);
    return suspects.size();
  };
  CHECK(note(world_event_kind::suspect) == 1);
  CHECK(note(world_event_kind::broken, cause::silent_peer) == 1);
  CHECK(note(world_event_kind::formed) == 0);
  CHECK(note(world_event_kind::suspect) == 1);
  CHECK(note(world_event_kind::broken, cause::peer_died) == 0);
  CHECK(worlds.size() == 1);
  CHECK(note(world_event_kind::closed) == 0);
  CHECK(worlds.empty());
}

TEST_CASE("processes of two hosts that have the same pid are two members") {
  hearing_agent a;
  const stranger worker(a.reports.address());
  worker.say(worker_hello{0, 1});
  world_news news;
  news.world = "kv";
  news.size = 3;
  news.pid = 20;
  for (const char* host : {"one", "two"}) {
    news.kind = world_event_kind::suspect;
    news.host = host;
    worker.say(news);
  }
  news.kind = world_event_kind::recovered;
  worker.say(news);
  worker.say(worker_progress{1});
  CHECK(a.until([](const worker_account& of) { return of.progress == 1; }));
  a.ask([&] {
    const auto& suspects = a.reports.of(0)->suspects;
    REQUIRE(suspects.size() == 1);
    CHECK(suspects.begin()->second.host == "one");
    return 0;
  });
}

TEST_CASE("a worker that waits says for which member, and in which operation") {
  hearing_agent a;
  const launch_context job = a.job();
  memory_store store;
  node b;
  std::thread worker([&] {
    runtime rt;
    auto work = [&]() -> task<void> {
      world w(rt, store, {.name = "kv", .rank = 0, .size = 2});
      co_await w;
      int x = 0;
      co_await w.recv(std::span(&x, 1), from(1));
    };
    CHECK(job.run(rt, work()) == 0);
  });
  world w(b.rt, store, {.name = "kv", .rank = 1, .size = 2});
  REQUIRE(!b.run(world_tests::forming(w)));
  CHECK(a.until([](const worker_account& of) {
    return of.waits && of.waits->kind == operation_kind::receive &&
           of.waits->world == "kv" && of.waits->peer_pid == ::getpid() &&
           of.last_wait == of.last_beat;
  }));
  auto send = [&]() -> task<void> {
    const int x = 1;
    co_await w.send(std::span(&x, 1), to(0));
  };
  b.run(send());
  worker.join();
}

TEST_CASE("L41: a deadline that passes is told once, and one that was kept is not") {
  hearing_agent a;
  const launch_context job = a.job();
  {
    const job_deadline kept = job.expires(30s, "kept");
    const job_deadline overrun = job.expires(50ms, "overrun");
    { const job_deadline short_lived = job.expires(300ms, "short"); }
    CHECK(a.until([&](const worker_account&) { return !a.told.overruns.empty(); }));
    CHECK(a.until([](const worker_account& of) { return of.deadlines.size() == 1; }));
    std::this_thread::sleep_for(400ms);
  }
  CHECK(a.until([](const worker_account& of) { return of.deadlines.empty(); }));
  CHECK(a.ask([&] { return a.told.overruns; }) == std::vector<std::string>{"0 overrun"});
}

TEST_CASE(
    "a worker writes its dump where the agent asks for it, also while it is stuck") {
  hearing_agent a;
  const own_folder folder;
  const launch_context job = a.job();
  std::atomic<bool> ends{false};
  std::thread worker([&] {
    runtime rt;
    auto work = [&]() -> task<void> {
      while (!ends) std::this_thread::sleep_for(1ms);
      co_return;
    };
    CHECK(job.run(rt, work()) == 0);
  });
  CHECK(a.until([](const worker_account& of) { return of.last_beat.has_value(); }));
  const std::string path = folder.file("dump.txt");
  const unique_descriptor to(::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  REQUIRE(to);
  CHECK(a.ask([&] { return a.reports.ask_for_dump(0, to.get()); }));
  CHECK(a.until([](const worker_account& of) { return of.dumps == 1; }));
  const std::string dump = content_of(path);
  CHECK_MESSAGE(dump.find("tasks that were started: ") != std::string::npos, dump);
  ends = true;
  worker.join();
  CHECK(!a.ask([&] { return a.reports.ask_for_dump(1, to.get()); }));
}

TEST_CASE("what is no report, or comes from no worker, ends its connection alone") {
  hearing_agent a;
  const launch_context job = a.job();
  job.progress(1);
  CHECK(a.until([](const worker_account& of) { return of.progress == 1u; }));
  const std::string name = a.reports.address();
  a.begin(1);
  SUBCASE("bytes") {
    const stranger s(name);
    s.say(bytes(100, std::byte{0xff}));
    CHECK(s.is_closed());
  }
  SUBCASE("a report before the hello") {
    const stranger s(name);
    s.say(worker_progress{3});
    CHECK(s.is_closed());
  }
  SUBCASE("a message that is too long, after a hello") {
    const stranger s(name);
    s.say(worker_hello{1, 1});
    s.say(bytes(longest_report + 1, std::byte{1}));
    CHECK(s.is_closed());
  }
  SUBCASE("a hello of no worker here, or none") {
    const stranger is_reported_for(name);
    is_reported_for.say(worker_hello{0, 1});
    const stranger other_incarnation(name);
    other_incarnation.say(worker_hello{1, 2});
    const stranger other_rank(name);
    other_rank.say(worker_hello{7, 1});
    // The process of rank 2 has not started this one.
    a.begin(2, 1);
    const stranger other_tree(name);
    other_tree.say(worker_hello{2, 1});
    const stranger silent(name);
    for (const stranger* each :
         {&is_reported_for, &other_incarnation, &other_rank, &other_tree, &silent})
      CHECK(each->is_closed());
  }
  // The first of two that follow each other closely may be the one that is told.
  CHECK(a.until([&](const worker_account& of) {
    job.progress(3);
    return of.progress == 3u;
  }));
}

TEST_CASE("without an agent reports do nothing, and take no time") {
  launch_context alone;
  launch_context lost =
      launch_context::from({{"MANYWORLDS_RUN_ID", "run"},
                            {"RANK", "0"},
                            {"WORLD_SIZE", "1"},
                            {"MASTER_ADDR", "127.0.0.1"},
                            {"MASTER_PORT", "1"},
                            {"MANYWORLDS_AGENT", "manyworlds-no-agent"}});
  REQUIRE(lost.agent);
  for (const launch_context* job : {&alone, &lost}) {
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < 1000; ++i) {
      job->event("e");
      job->metric("m", 1);
      job->progress(static_cast<std::uint64_t>(i));
      const job_deadline at_most = job->expires(1ms);
      const job_timer timed = job->timed("t");
    }
    CHECK(std::chrono::steady_clock::now() - began < 10s);
    runtime rt;
    auto work = []() -> task<void> { co_return; };
    CHECK(job->run(rt, work()) == 0);
  }
}

TEST_CASE("an agent that does not read holds up no worker, and hears its state later") {
  hearing_agent a;
  const launch_context job = a.job();
  auto blocked = [&]() -> task<void> {
    std::this_thread::sleep_for(1s);
    co_return;
  };
  job.metric("first", 0);
  CHECK(a.until([](const worker_account& of) { return of.has_come; }));
  const auto blocking = a.at.rt.start(blocked());
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 20000; ++i) job.metric("many", i);
  const auto deadline = job.expires(1h, "told");
  { const auto ended = job.expires(100ms, "ended in time"); }
  CHECK(std::chrono::steady_clock::now() - began < 10s);
  (void)blocking.wait_for(20s);
  CHECK(a.until([](const worker_account& of) { return of.deadlines.size() == 1; }));
  std::this_thread::sleep_for(200ms);
  a.ask([&] {
    CHECK(a.told.reported.size() < 20000);
    CHECK(a.told.overruns.empty());
    return 0;
  });
}

TEST_CASE("once the agent hears no worker, a descriptor of the same number is not read") {
  node at;
  heard told;
  worker_reports reports(access::core(at.rt).user(), told);
  const stranger worker(reports.address());
  worker.say(worker_hello{0, 1});
  bool was_connected = false;
  auto hear = [&]() -> task<void> {
    reports.begin(0, 1, ::getpid());
    auto come = [&]() -> task<void> {
      while (!reports.of(0)->is_connected) co_await sleep_for(5ms);
      was_connected = true;
      co_await sleep_for(20ms);
    };
    co_await when_any(reports.run(), come(), sleep_for(20s));
  };
  at.run(hear());
  REQUIRE(was_connected);
  // One of these has the number of the connection.
  std::vector<unique_descriptor> others;
  const bytes message = encoded(worker_progress{99});
  for (int i = 0; i < 32; ++i) {
    int pair[2] = {-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    for (const int each : pair) {
      others.emplace_back(each);
      REQUIRE(::send(each, message.data(), message.size(), 0) > 0);
    }
  }
  auto hear_rest = [&]() -> task<void> {
    reports.hear_rest(0);
    co_return;
  };
  at.run(hear_rest());
  CHECK(!reports.of(0)->progress);
}

TEST_CASE(
    "what a process said before its end is heard, also if it was not accepted yet") {
  node at;
  heard told;
  worker_reports reports(access::core(at.rt).user(), told);
  bool is_accepted = false;
  SUBCASE("it connected, reported and ended between two turns of the reactor") {}
  SUBCASE("it was faster than its starter, and waits to be known") { is_accepted = true; }
  auto work = [&]() -> task<void> {
    co_await sleep_for(20ms);
    const stranger other(reports.address());
    {
      const stranger worker(reports.address());
      worker.say(worker_hello{0, 1});
      worker.say(worker_progress{7});
    }
    other.say(worker_hello{1, 1});
    if (is_accepted) co_await sleep_for(60ms);
    reports.begin(0, 1, ::getpid());
    reports.begin(1, 1, ::getpid());
    reports.hear_rest(0);
    CHECK(reports.of(0)->has_come);
    CHECK(reports.of(0)->progress == 7);
    // The others that waited are served as ever.
    other.say(worker_progress{8});
    const time_point until = access::core(at.rt).user().now() + 20s;
    while (!reports.of(1)->progress && access::core(at.rt).user().now() < until)
      co_await sleep_for(5ms);
    CHECK(reports.of(1)->progress == 8);
  };
  auto all = [&]() -> task<void> { co_await when_any(reports.run(), work()); };
  at.run(all());
}

TEST_CASE("L41: a deadline that was kept while the agent was held up is no overrun") {
  hearing_agent a;
  const launch_context job = a.job();
  {
    const job_deadline kept = job.expires(300ms, "kept");
    CHECK(a.until([](const worker_account& of) { return of.deadlines.size() == 1; }));
    auto held_up = []() -> task<void> {
      std::this_thread::sleep_for(700ms);
      co_return;
    };
    (void)a.at.rt.start(held_up());
    std::this_thread::sleep_for(100ms);
    // The end is behind more than is read at once.
    for (int i = 0; i < 150; ++i) job.metric("m", i);
  }
  CHECK(a.until([](const worker_account& of) { return of.deadlines.empty(); }));
  CHECK(a.ask([&] { return a.told.overruns; }).empty());
}

TEST_CASE("L41: deadlines and beats of a process end with its connection") {
  hearing_agent a;
  {
    const stranger worker(a.reports.address());
    worker.say(worker_hello{0, 1});
    worker.say(worker_beat{});
    worker.say(deadline_begun{1, 400ms, "left"});
    CHECK(a.until([](const worker_account& of) { return of.deadlines.size() == 1; }));
  }
  // The shell that has started it, say, goes on.
  CHECK(a.until([](const worker_account& of) { return !of.is_connected; }));
  CHECK(a.until([](const worker_account& of) { return !of.last_beat; }));
  std::this_thread::sleep_for(600ms);
  CHECK(a.ask([&] { return a.told.overruns; }).empty());
}

TEST_CASE("a descendant that never ceases to report does not hold up the agent") {
  hearing_agent a;
  const stranger worker(a.reports.address());
  worker.say(worker_hello{0, 1});
  CHECK(a.until([](const worker_account& of) { return of.has_come; }));
  const auto heard_by = [&] {
    return a.ask([&] {
      a.reports.hear_rest(0);
      return a.told.reported.size();
    });
  };
  // For each report that is read there is another one.
  constexpr std::size_t most = 100000;
  a.told.then = [&] {
    if (a.told.reported.size() < most) worker.say(reported_metric{"m", 1});
  };
  worker.say(reported_metric{"m", 1});
  CHECK(heard_by() < most);
  // The agent outlives what it refers to.
  a.ask([&] {
    a.told.then = nullptr;
    return 0;
  });
}

TEST_CASE("processes that never cease to connect do not hold up the agent") {
  hearing_agent a;
  std::atomic<bool> end{false};
  auto connect = [&] {
    const abstract_address to(a.reports.address());
    while (!end) {
      const unique_descriptor one(
          ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      (void)::connect(one.get(), to.get(), to.length);
    }
  };
  std::vector<std::thread> all;
  for (int i = 0; i < 6; ++i) all.emplace_back(connect);
  std::this_thread::sleep_for(200ms);
  auto nothing = []() -> task<void> { co_return; };
  for (int i = 0; i < 5; ++i) {
    const auto turn = a.at.rt.start(nothing());
    CHECK(turn.wait_for(5s));
  }
  end = true;
  for (std::thread& each : all) each.join();
}

TEST_CASE("a forked child waits for no lock that its parent's threads held") {
  hearing_agent a;
  const launch_context job = a.job();
  std::atomic<bool> ends{false};
  std::thread busy([&] {
    while (!ends) {
      job.progress(1);
      const job_deadline at_most = job.expires(1h, "busy");
    }
  });
  for (int i = 0; i < 40; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(5);
      job.progress(2);
      { const job_deadline at_most = job.expires(1h, "child"); }
      job.agent->detach();
      job.agent->tell(worker_rest());
      ::_exit(0);
    }
    REQUIRE(child > 0);
    int status = -1;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    CHECK(status == 0);
    if (status != 0) break;
  }
  ends = true;
  busy.join();
}

TEST_CASE("descriptors that come with no request of an agent are closed") {
  const std::string name = "manyworlds-test-" + std::to_string(::getpid());
  const unique_descriptor listening(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0),
                                    "socket");
  const abstract_address at(name);
  REQUIRE(::bind(listening.get(), at.get(), at.length) == 0);
  REQUIRE(::listen(listening.get(), 1) == 0);
  const launch_context job = launch_context::from({{"MANYWORLDS_RUN_ID", "run"},
                                                   {"RANK", "0"},
                                                   {"WORLD_SIZE", "1"},
                                                   {"MASTER_ADDR", "127.0.0.1"},
                                                   {"MASTER_PORT", "1"},
                                                   {"MANYWORLDS_AGENT", name}});
  std::atomic<bool> ends{false};
  std::thread worker([&] {
    runtime rt;
    auto work = [&]() -> task<void> {
      while (!ends) co_await sleep_for(10ms);
    };
    CHECK(job.run(rt, work()) == 0);
  });
  const unique_descriptor to(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC),
                             "accept4");
  int ends_of[2] = {-1, -1};
  REQUIRE(::pipe2(ends_of, O_CLOEXEC) == 0);
  const unique_descriptor reads(ends_of[0]);
  {
    const unique_descriptor writes(ends_of[1]);
    const int two[2] = {writes.get(), writes.get()};
    std::byte what = dump_request;
    iovec from{&what, 1};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof two)> beside{};
    msghdr message{};
    message.msg_iov = &from;
    message.msg_iovlen = 1;
    message.msg_control = beside.data();
    message.msg_controllen = beside.size();
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof two);
    std::memcpy(CMSG_DATA(head), two, sizeof two);
    REQUIRE(::sendmsg(to.get(), &message, MSG_NOSIGNAL) == 1);
  }
  // The pipe ends once no descriptor is left that writes.
  ::pollfd ended{reads.get(), POLLIN, 0};
  CHECK(::poll(&ended, 1, 10000) == 1);
  ends = true;
  worker.join();
}

TEST_CASE("a name of an agent that is too long is refused") {
  const launch_variables wrong{
      {"MANYWORLDS_RUN_ID", "run"}, {"RANK", "0"},
      {"WORLD_SIZE", "1"},          {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", "1"},         {"MANYWORLDS_AGENT", std::string(200, 'x')}};
  CHECK_THROWS_WITH_AS((void)launch_context::from(wrong),
                       doctest::Contains("MANYWORLDS_AGENT"), launch_error);
}

TEST_SUITE_END();

}  // namespace manyworlds::launch_tests
