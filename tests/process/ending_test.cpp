// Processes that end by themselves: in order at a signal, and by exit() where it hurts.
#include <sys/wait.h>

#include "process_fixture.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

TEST_CASE(
    "exit() inside a task of a runtime of static lifetime ends the process, says why, "
    "and "
    "tells the peers") {
  for (const char* how : {"run", "start"}) {
    CAPTURE(how);
    site here(engine_kind::automatic);
    leader us(here);
    process ending({"ending", "exit", how, here.store_address});
    world w = us.form("edge");
    ending.expect("formed");
    const auto begun = clock::now();
    ending.order("go on");
    const failure f = us.broken(w, 10s);
    CAPTURE(f.text());
    CHECK(f.cause == cause::runtime_stopped);
    CHECK(f.rank == 1);
    const std::string line = ending.expect("log");
    CHECK_MESSAGE(line.find("inside one of its own tasks") != std::string::npos, line);
    CHECK_MESSAGE(line.find("ending_orders.hpp:") != std::string::npos, line);
    const int status = ending.end(15s);
    CHECK(clock::now() - begun < 15s);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 3);
  }
}

TEST_CASE(
    "a runtime is destroyed though a function that it has offloaded does not return: "
    "that "
    "is said, and the peers are told") {
  site here(engine_kind::automatic);
  leader us(here);
  process ending({"ending", "blocked", here.store_address});
  world w = us.form("edge");
  ending.expect("blocked");
  const auto begun = clock::now();
  ending.order("go on");
  const failure f = us.broken(w, 10s);
  CHECK_MESSAGE(f.cause == cause::runtime_stopped, f.text());
  const std::string line = ending.expect("log", 30s);
  CHECK_MESSAGE(line.find("1 task started at") != std::string::npos, line);
  CHECK_MESSAGE(line.find("ending_orders.hpp:") != std::string::npos, line);
  ending.expect("destroyed", 30s);
  CHECK(clock::now() - begun < 40s);
  CHECK(ending.end() == 0);
}

TEST_CASE(
    "SIGTERM and SIGINT are awaited: an idle keep ends at once, one in use is left in "
    "order within the drain, and the process ends with 0") {
  for (const engine_kind e : engines()) {
    for (const int number : {SIGTERM, SIGINT}) {
      CAPTURE(name_of(e));
      CAPTURE(number);
      site here(e);
      leader us(here);
      process ending({"ending", "signal", here.store_address, name_of(e)});
      world w = us.form("served");
      ending.expect("ready");
      ending.expect("formed served");
      REQUIRE(::kill(ending.pid(), number) == 0);
      const std::string came = ending.expect("came");
      CHECK(came == std::string("came ") + (number == SIGTERM ? "SIGTERM " : "SIGINT ") +
                        std::to_string(::getpid()));
      // What is open goes on.
      auto say = [&](std::uint64_t word) -> task<void> {
        co_await w.send(std::span(&word, 1), to(1)).delivered();
      };
      us.run(say(1));
      CHECK(w.state() == world_state::up);
      us.run(say(0));
      const auto begun = clock::now();
      const failure f = us.broken(w, 10s);
      CHECK_MESSAGE(f.cause == cause::closed, f.text());
      // The drain of 20 s is not waited for: the other keep has nothing open.
      ending.expect("left", 10s);
      CHECK(ending.end(10s) == 0);
      CHECK(clock::now() - begun < 12s);
    }
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
