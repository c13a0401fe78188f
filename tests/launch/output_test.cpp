// Where a program's output goes.
#include <fcntl.h>

#include "process_fixture.hpp"

namespace manyworlds::launch_tests {

TEST_SUITE_BEGIN("launch");

namespace {

struct piece {
  std::string text;
  bool is_whole;
  friend bool operator==(const piece&, const piece&) = default;
};

std::vector<piece> pieces_of(node& n, process_options how, std::size_t longest) {
  std::vector<piece> all;
  how.output(lines(
      [&](const output_line& line) {
        all.push_back({std::string(line.text), line.is_whole});
      },
      longest));
  run_to_end(n, std::move(how));
  return all;
}

}  // namespace

TEST_CASE("a file is written by the program itself, appended or begun anew") {
  node n;
  const own_folder here;
  const std::string file = here.file("log");
  const process_options how = orders({"print", "out", "flush", "print-error", "err"});
  run_to_end(n, process_options(how).output(to_file(file)));
  run_to_end(n, process_options(how).output(to_file(file)));
  CHECK(content_of(file) == "out\nerr\nout\nerr\n");
  run_to_end(n, process_options(how).output(to_file(file, file_mode::truncate)));
  CHECK(content_of(file) == "out\nerr\n");
  run_to_end(
      n, process_options(how).output(to_file(file)).errors(to_file(here.file("err"))));
  CHECK(content_of(file) == "out\nerr\nout\n");
  CHECK(content_of(here.file("err")) == "err\n");
}

TEST_CASE("a restart keeps what a truncated file has from the start before") {
  node n;
  const own_folder here;
  const std::string file = here.file("log");
  run_to_end(
      n, orders({"print", "again", "exit", "1"})
             .output(to_file(file, file_mode::truncate))
             .restart({.when = restart_when::on_failure, .most = 1, .shortest = 1ms}));
  CHECK(content_of(file) == "again\nagain\n");
}

TEST_CASE("output that is dropped goes nowhere") {
  node n;
  const exit_reason end =
      run_to_end(n, orders({"print", "x"}).output(process_output::none()));
  CHECK(end.is_success());
}

TEST_CASE("lines come whole and in order, also binary ones and one without an end") {
  node n;
  const std::vector<piece> got = pieces_of(
      n, orders({"print", "one", "print", "", "bytes", "print-part", "last"}), 1000);
  const std::vector<piece> wanted = {
      {"one", true}, {"", true}, {std::string("a\0b\xff", 4), true}, {"last", true}};
  CHECK(got == wanted);
}

TEST_CASE("a line of 200 KB comes whole, and one above the limit in pieces") {
  node n;
  const std::vector<piece> whole =
      pieces_of(n, orders({"long", "200000", "print", ""}), 1 << 20);
  REQUIRE(whole.size() == 1);
  CHECK(whole[0] == piece{std::string(200'000, 'x'), true});
  const std::vector<piece> pieces =
      pieces_of(n, orders({"long", "200000", "print", "", "print", "next"}), 64 * 1024);
  REQUIRE(pieces.size() == 5);
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(pieces[i] == piece{std::string(65536, 'x'), false});
  CHECK(pieces[3] == piece{std::string(200'000 - 3 * 65536, 'x'), true});
  CHECK(pieces[4] == piece{"next", true});
  // A limit that a line just meets.
  const std::vector<piece> exact = pieces_of(n, orders({"print", "12345"}), 5);
  CHECK(exact == std::vector<piece>{{"12345", true}});
}

TEST_CASE("a program waits for a task that takes its lines") {
  node n;
  int taken = 0;
  bool is_alone = true;
  bool is_taking = false;
  process_options how = orders({"lines", "50000"});
  const auto take = [&](const output_line& line) -> task<void> {
    is_alone = is_alone && !std::exchange(is_taking, true);
    if (line.text.ends_with("000")) co_await sleep_for(1ms);
    ++taken;
    is_taking = false;
  };
  how.output(lines(take));
  CHECK(run_to_end(n, std::move(how)).is_success());
  CHECK(taken == 50'000);
  CHECK(is_alone);
}

TEST_CASE("a tee gives the output to each, and a taker that throws loses no line") {
  node n;
  const own_folder here;
  int taken = 0;
  const auto take = [&](const output_line&) {
    ++taken;
    throw std::runtime_error("no more");
  };
  run_to_end(n, orders({"print", "one", "print", "two"})
                    .output(tee(to_file(here.file("log")), lines(take))));
  CHECK(taken == 2);
  CHECK(content_of(here.file("log")) == "one\ntwo\n");
  CHECK(n.log.count("a function that takes lines has thrown: no more") == 2);
}

TEST_CASE("V7 no function takes a line after the destructor, however much has come") {
  node n;
  for (int round = 0; round < 20; ++round) {
    bool is_gone = false;
    int late = 0;
    event came;
    std::optional<supervised_process> one;
    process_options how = orders({"lines", "100000"});
    how.output(lines([&](const output_line&) {
      late += is_gone ? 1 : 0;
      came.set();
    }));
    one.emplace(n.rt, std::move(how));
    auto life = [&]() -> task<void> {
      co_await one->started();
      co_await came.wait();
      one.reset();
      is_gone = true;
      co_await sleep_for(5ms);
    };
    n.run(life());
    CHECK(late == 0);
  }
}

TEST_CASE("output is inherited by default, and so are the errors") {
  node n;
  const own_folder here;
  const int log = ::open(here.file("log").c_str(), O_WRONLY | O_CREAT, 0644);
  const int before = ::dup(STDOUT_FILENO);
  ::dup2(log, STDOUT_FILENO);
  run_to_end(n, orders({"print", "inherited"}));
  run_to_end(n, orders({"print", "twice"})
                    .output(tee(process_output::inherit(), to_file(here.file("other")))));
  ::dup2(before, STDOUT_FILENO);
  ::close(before);
  ::close(log);
  CHECK(content_of(here.file("log")) == "inherited\ntwice\n");
  CHECK(content_of(here.file("other")) == "twice\n");
}

TEST_CASE("the last lines are taken before the end is told") {
  node n;
  for (int i = 0; i < 20; ++i) {
    std::string last;
    process_options how = orders({"lines", "1000", "exit", "3"});
    how.output(lines([&](const output_line& line) { last = line.text; }));
    supervised_process one(n.rt, std::move(how));
    auto ended = [&]() -> task<std::string> {
      co_await one.ended();
      co_return last;
    };
    CHECK(n.run(ended()) == "line 999");
  }
}

TEST_CASE("a descendant that keeps the output open does not hold up the end") {
  node n;
  const own_folder here;
  process_options how = orders(
      {"print", "x", "flush", "daemon", here.file("child"), "sleep", "300", "exit", "4"});
  how.output(lines([](const output_line&) {}));
  CHECK(run_to_end(n, std::move(how)).code == 4);
  CHECK(ends(pid_in(here.file("child"))));
}

TEST_CASE("V12 a million lines disturb no world") {
  memory_store store;
  node a({.heartbeat = 20ms});
  node b({.heartbeat = 20ms});
  world wa;
  world wb;
  world_tests::form_two({.name = "beside", .form = 10s}, store, a, wa, b, wb);
  std::uint64_t count = 0;
  process_options how = orders({"lines", "1000000"});
  how.output(lines([&](const output_line&) { ++count; }));
  supervised_process one(a.rt, std::move(how));
  duration longest{};
  auto talk = [&](world& w, rank_t peer, bool begins) -> task<void> {
    for (int i = 0; i < 200; ++i) {
      std::uint64_t word = 1;
      const auto before = world_tests::clock::now();
      if (begins) co_await w.send(std::span(&word, 1), to(peer)).within(10s);
      co_await w.recv(std::span(&word, 1), from(peer)).within(10s);
      if (!begins) co_await w.send(std::span(&word, 1), to(peer)).within(10s);
      if (begins)
        longest = std::max<duration>(longest, world_tests::clock::now() - before);
    }
  };
  auto ended = [&]() -> task<exit_reason> { co_return co_await one.ended(); };
  auto end = a.rt.start(ended());
  auto answering = b.rt.start(talk(wb, 0, false));
  a.run(talk(wa, 1, true));
  b.finish(answering);
  CHECK(a.finish(end, 60s).is_success());
  CHECK(count == 1'000'000);
  CHECK(longest < 1s);
  CHECK(a.run(world_tests::forming(wa)).cause == cause::none);
}

TEST_SUITE_END();

}  // namespace manyworlds::launch_tests
