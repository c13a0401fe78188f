// What a started task throws: given to who asks, else said in the log and in the dump.
#include <memory>
#include <optional>
#include <stdexcept>

#include "manyworlds/testing/simulation.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

task<void> fails(std::string why) {
  co_await yield();
  throw std::runtime_error(why);
}

/// A runtime in virtual time, with a log that is kept.
struct simulated_runtime {
  simulated_runtime() {
    runtime_options options;
    options.environment = &sim.add_process("alone");
    options.log = &log;
    options.log_from = log_level::debug;
    rt = std::make_unique<runtime>(options);
  }
  [[nodiscard]] std::ptrdiff_t errors(std::string_view text) const {
    return log.count(text, log_level::error);
  }

  simulation sim{1};
  kept_log log;
  std::unique_ptr<runtime> rt;
};

}  // namespace

TEST_CASE("what a started task throws is logged at once if its handle was dropped") {
  simulated_runtime s;
  (void)s.rt->start(fails("no such model"));
  REQUIRE(s.sim.run_until([&] { return s.errors("no such model") == 1; }));
  CHECK(s.sim.elapsed() < 1s);
  CHECK(s.errors("started_test.cpp") == 1);
  (void)s.rt->start_service(fails("no such service"));
  REQUIRE(s.sim.run_until([&] { return s.errors("no such service") == 1; }));
  const std::string dump = s.rt->dump();
  CHECK(dump.find("no such model") != std::string::npos);
  CHECK(dump.find("no such service") != std::string::npos);
  s.rt = nullptr;
  CHECK(s.errors("no such") == 2);
}

TEST_CASE("... a second later if the handle is kept and not asked, and when it goes") {
  simulated_runtime s;
  std::optional<started<void>> kept = s.rt->start(fails("kept"));
  std::optional<started<void>> dropped = s.rt->start(fails("dropped"));
  REQUIRE(s.sim.run_until([&] { return kept->is_ready() && dropped->is_ready(); }));
  CHECK(s.errors("kept") == 0);
  dropped = std::nullopt;
  CHECK(s.errors("dropped") == 1);
  REQUIRE(s.sim.run_until([&] { return s.errors("kept") == 1; }));
  CHECK(s.sim.elapsed() >= 1s);
  CHECK(s.sim.elapsed() < 2s);
  // It is given all the same, and not said again.
  CHECK_THROWS_WITH(kept->get(), "kept");
  kept = std::nullopt;
  s.rt = nullptr;
  CHECK(s.errors("kept") == 1);
  CHECK(s.errors("dropped") == 1);
}

TEST_CASE("what is asked for in time, or thrown by run(), is not logged") {
  node n;
  auto handle = n.rt.start(fails("asked"));
  CHECK_THROWS_WITH(n.finish(handle), "asked");
  node turned_here;
  CHECK_THROWS_WITH(turned_here.rt.run(fails("thrown")), "thrown");
  n.rt.~runtime();
  turned_here.rt.~runtime();
  CHECK(n.log.count("", log_level::error) == 0);
  CHECK(turned_here.log.count("", log_level::error) == 0);
  new (&n.rt) runtime({.log_from = log_level::silent});
  new (&turned_here.rt) runtime({.log_from = log_level::silent});
}

TEST_CASE("a runtime that ends says what its tasks threw before it is gone") {
  simulated_runtime s;
  auto kept = s.rt->start(fails("at the end"));
  REQUIRE(s.sim.run_until([&] { return kept.is_ready(); }));
  s.rt = nullptr;
  CHECK(s.errors("at the end") == 1);
  CHECK_THROWS_WITH(kept.get(), "at the end");
}

TEST_CASE("what stop() does to a task is no error of its") {
  memory_store store;
  node a;
  node b;
  world wa;
  world wb;
  form_two({.name = "pair", .form = 10s}, store, a, wa, b, wb);
  auto shielded = [](world& w) -> task<void> {
    std::uint64_t word = 0;
    co_await shield(w.recv(std::span(&word, 1), from(1)));
  };
  (void)a.rt.start(shielded(wa));
  a.rt.~runtime();
  CHECK(a.log.count("", log_level::error) == 0);
  CHECK(a.log.has("nothing has asked for"));
  new (&a.rt) runtime({.log_from = log_level::silent});
}

TEST_CASE("a dump lists the tasks that run, with the places where they were started") {
  node n;
  auto waits = []() -> task<void> { co_await sleep_for(1h); };
  auto waiting = n.rt.start(waits());
  const std::string dump = n.rt.dump();
  CAPTURE(dump);
  CHECK(dump.find("tasks that were started: 1") != std::string::npos);
  CHECK(dump.find("started at started_test.cpp:") != std::string::npos);
  CHECK(n.rt.dump_json().find("\"tasks\"") != std::string::npos);
  n.rt.stop();
  n.finish(waiting);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
