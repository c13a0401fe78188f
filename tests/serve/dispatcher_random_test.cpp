// Dispatcher: many calls at once, given up at any moment.
#include "dispatch_fixture.hpp"

namespace manyworlds::dispatch_tests {

TEST_SUITE_BEGIN("serve");

namespace {

std::string some_request(simulated_random& random) {
  switch (random.below(7)) {
    case 0:
      return "echo " + std::string(random.below(300'000), 'x');
    case 1:
      return "count " + std::to_string(random.below(100));
    case 2:
      return "tick " + std::to_string(random.below(4));
    case 3:
      return "big " + std::to_string(random.below(300'000));
    case 4:
      return "first";
    case 5:
      return "throw";
    default:
      return "none";
  }
}

/// What a whole answer to it is; nothing for one that does not end by itself.
std::optional<std::size_t> replies_of(const std::string& request) {
  const std::string what = request.substr(0, request.find(' '));
  if (what == "first") return std::nullopt;
  if (what == "none" || what == "throw") return 0;
  if (what == "echo" || what == "big") return 1;
  return std::stoul(request.substr(request.find(' ')));
}

}  // namespace

TEST_CASE(
    "calls that are given up at any moment break no world and give every slot back; "
    "those that are not are answered whole") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    site s({.in_flight_per_worker = 4, .queue = 1000, .window = 2000}, seed);
    worker& left = s.add("left");
    worker& right = s.add("right", {.concurrent = 2});
    s.await_workers(2);
    const auto before = s.workers->workers();
    struct asked {
      std::string request;
      bool is_limited;
      std::stop_source gone;
      std::shared_ptr<story> told;
    };
    std::vector<asked> calls;
    simulated_random random = s.sim.random().fork();
    for (int i = 0; i < 150; ++i) {
      asked next{some_request(random), random.one_in(3), {}, {}};
      const duration limit =
          next.is_limited ? duration(random.below(3'000'000)) : duration::max();
      next.told = s.call(next.request, limit, next.gone.get_token());
      if (!replies_of(next.request) || random.one_in(3)) {
        next.is_limited = true;
        s.sim.after(duration(random.below(3'000'000)),
                    [gone = next.gone]() mutable { gone.request_stop(); });
      }
      calls.push_back(std::move(next));
      if (random.one_in(4)) s.sim.run_for(duration(random.below(300'000)));
    }
    for (const asked& each : calls) {
      CAPTURE(each.request.substr(0, 20));
      s.await(*each.told);
      const story& told = *each.told;
      const bool threw = each.request == "throw";
      if (each.is_limited) {
        CHECK((!told.why || told.why.cause == cause::cancelled ||
               told.why.cause == cause::timed_out || threw));
      } else {
        CAPTURE(told.why.text());
        CHECK(told.why.cause == (threw ? cause::handler_failed : cause::none));
        CHECK(told.count == *replies_of(each.request));
      }
    }
    s.sim.run_for(1s);
    const auto after = s.workers->workers();
    REQUIRE(after.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(after[i].id == before[i].id);
      CHECK(after[i].depth == 0);
    }
    CHECK(s.workers->queued() == 0);
    CHECK(left.ended == static_cast<int>(left.begun.size()));
    CHECK(right.ended == static_cast<int>(right.begun.size()));
  }
}

TEST_CASE("two thousand calls are open at once, and all are answered") {
  site s({.in_flight_per_worker = 500, .queue = 2000});
  for (const char* name : {"a", "b", "c", "d"}) s.add(name, {.concurrent = 500});
  s.await_workers(4);
  std::vector<std::shared_ptr<story>> told;
  for (int i = 0; i < 2500; ++i) told.push_back(s.call("tick 3"));
  s.sim.run_for(5ms);
  std::size_t depth = 0;
  for (const auto& w : s.workers->workers()) depth += w.depth;
  CHECK(depth == 2000);
  CHECK(s.workers->queued() == 500);
  for (const auto& each : told) {
    s.await(*each);
    CHECK(each->count == 3);
  }
}

TEST_CASE("a dispatcher may outlive its runtime, also one that calls have waited for") {
  dispatcher outside({.patience = 1h});
  site s;
  auto wait = [&]() -> task<void> {
    const std::string request = "echo hello";
    (void)co_await outcome(outside.call(request));
  };
  process other(s, "other");
  auto waiting = other.start(wait());
  s.sim.run_for(1s);
  CHECK(outside.queued() == 1);
  other.rt->stop();
  REQUIRE(s.until([&] { return waiting.is_ready(); }));
  other.end();
  CHECK(outside.queued() == 0);
}

TEST_SUITE_END();

}  // namespace manyworlds::dispatch_tests
