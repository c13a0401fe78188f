// Dispatcher: which worker a call goes to, how many it has, and how one is let go.
#include "dispatch_fixture.hpp"

namespace manyworlds::dispatch_tests {

TEST_SUITE_BEGIN("serve");

namespace {

/// The index of the worker under that name, full or not.
class only {
 public:
  explicit only(std::string name) : name_(std::move(name)) {}
  std::optional<std::size_t> operator()(std::span<const worker_status> workers) const {
    for (std::size_t i = 0; i < workers.size(); ++i) {
      if (workers[i].world == world_name(name_)) return i;
    }
    return std::nullopt;
  }

 private:
  std::string name_;
};

worker_status status_of(site& s, const char* name) {
  for (const worker_status& each : s.workers->workers()) {
    if (each.world == world_name(name)) return each;
  }
  FAIL("no such worker");
  return {};
}

}  // namespace

TEST_CASE("without a policy calls go to the worker with the fewest") {
  site s;
  worker& left = s.add("left");
  worker& right = s.add("right");
  s.await_workers(2);
  for (int i = 0; i < 10; ++i) (void)s.call("hold");
  REQUIRE(s.until([&] { return left.begun.size() + right.begun.size() == 10; }));
  CHECK(left.begun.size() == 5);
}

TEST_CASE("a worker has no more calls than its cap, and no more than it says itself") {
  site s({.in_flight_per_worker = 3});
  worker& left = s.add("left");
  worker& right = s.add("right", {.concurrent = 2});
  s.await_workers(2);
  for (int i = 0; i < 10; ++i) (void)s.call("hold");
  REQUIRE(s.until([&] { return left.begun.size() + right.begun.size() == 5; }));
  s.sim.run_for(100ms);
  CHECK(left.begun.size() == 3);
  CHECK(right.begun.size() == 2);
  CHECK(s.workers->queued() == 5);
}

TEST_CASE(
    "calls that wait are served in the order they came; the queue's limit is "
    "overloaded") {
  site s({.in_flight_per_worker = 1, .queue = 20});
  worker& left = s.add("left");
  s.await_workers(1);
  std::vector<std::shared_ptr<story>> told;
  for (int i = 0; i < 22; ++i) told.push_back(s.call("echo " + std::to_string(i)));
  for (const auto& each : told) s.await(*each);
  REQUIRE(left.begun.size() == 21);
  for (int i = 0; i < 21; ++i)
    CHECK(left.begun[static_cast<std::size_t>(i)] == "echo " + std::to_string(i));
  CHECK(told[21]->why.cause == cause::overloaded);
  CHECK(told[21]->why.detail.find("20 calls already wait") != std::string::npos);
}

TEST_CASE("a call that was queued first is retried first") {
  site s({.in_flight_per_worker = 1});
  worker& left = s.add("left");
  s.await_workers(1);
  (void)s.call("hold");
  REQUIRE(s.until([&] { return left.begun.size() == 1; }));
  (void)s.call("echo second");
  s.sim.run_for(1ms);
  worker& right = s.add("right", {.concurrent = 1});
  REQUIRE(s.until([&] { return right.begun.size() == 1; }));
  CHECK(right.begun[0] == "echo second");
  (void)s.call("tick 1000", only("right"));
  REQUIRE(s.until([&] { return right.begun.size() == 2; }));
  (void)s.call("echo third");
  left.kill();
  REQUIRE(s.until([&] { return right.begun.size() == 3; }, 60s));
  CHECK(right.begun[2] == "hold");
}

TEST_CASE("a policy chooses by depth and by the word that workers publish") {
  site s;
  worker& left = s.add("left");
  worker& right = s.add("right");
  s.await_workers(2);
  left.server.publish_load(7);
  right.server.publish_load(3);
  right.server.publish_load(2);
  REQUIRE(s.until([&] { return status_of(s, "left").load == 7; }, 1s));
  REQUIRE(s.until([&] { return status_of(s, "right").load == 2; }, 1s));
  const auto lightest = [](std::span<const worker_status> workers) {
    const auto best =
        std::min_element(workers.begin(), workers.end(),
                         [](const auto& a, const auto& b) { return a.load < b.load; });
    return static_cast<std::size_t>(best - workers.begin());
  };
  for (int i = 0; i < 3; ++i) (void)s.call("hold", lightest);
  REQUIRE(s.until([&] { return right.begun.size() == 3; }));
  CHECK(status_of(s, "right").depth == 3);
  CHECK(status_of(s, "right").calls == 3);
  CHECK(left.begun.empty());
  right.server.publish_load(100);
  REQUIRE(s.until([&] { return status_of(s, "right").load == 100; }, 1s));
  (void)s.call("hold", lightest);
  REQUIRE(s.until([&] { return left.begun.size() == 1; }));
}

TEST_CASE("a worker that comes back publishes its load again") {
  site s;
  worker& left = s.add("left");
  left.server.publish_load(7);
  s.await_workers(1);
  REQUIRE(s.until([&] { return status_of(s, "left").load == 7; }, 1s));
  const worker_id before = status_of(s, "left").id;
  auto fail = [&]() -> task<void> {
    const auto core = access::core(*s.leader.rt).worlds().snapshot().at(0);
    core->break_with(core->describe_failure(cause::broken_by_user, no_rank,
                                            operation_kind::none, "again"));
    co_return;
  };
  s.run(fail());
  REQUIRE(s.until([&] {
    const auto now = s.workers->workers();
    return now.size() == 1 && now[0].id != before && now[0].load == 7;
  }));
}

TEST_CASE("a call that waits for a full worker does not hold up those for others") {
  site s({.in_flight_per_worker = 1});
  worker& left = s.add("left");
  worker& right = s.add("right");
  s.await_workers(2);
  (void)s.call("tick 100", only("left"));
  const auto patient = s.call("echo patient", only("left"));
  const auto other = s.call("echo other");
  s.await(*other);
  CHECK(!patient->is_over);
  CHECK(right.begun.size() == 1);
  s.await(*patient);
  CHECK(left.begun.size() == 2);
}

TEST_CASE("a policy that throws, or chooses whom there is not, ends its call alone") {
  site s({.in_flight_per_worker = 1});
  s.add("left");
  s.await_workers(1);
  const auto wrong = [](std::span<const worker_status>) { return std::size_t{7}; };
  const auto told = s.call("echo wrong", wrong);
  s.await(*told);
  CHECK(told->why.cause == cause::invalid_argument);
  // Asked by its own call, and again from the queue.
  for (const bool queued : {false, true}) {
    if (queued) (void)s.call("tick 3");
    auto throws = [&]() -> task<void> {
      const auto pick = [](std::span<const worker_status>) -> std::optional<std::size_t> {
        throw std::runtime_error("the policy's own");
      };
      const std::string request = "echo throws";
      CHECK_THROWS_WITH((void)co_await s.workers->call(request, pick),
                        "the policy's own");
    };
    s.run(throws());
  }
  const auto after = s.call("echo after");
  s.await(*after);
  CHECK(after->replies == "after");
}

TEST_CASE("a suspect worker gets nothing new, and gets calls again when it is heard of") {
  site s;
  worker& left = s.add("left");
  s.await_workers(1);
  left.stop();
  REQUIRE(s.until([&] { return status_of(s, "left").is_suspect; }, 3s));
  const auto told = s.call("echo hello");
  s.sim.run_for(1s);
  CHECK(s.workers->queued() == 1);
  CHECK(status_of(s, "left").depth == 0);
  left.go_on();
  s.await(*told, 1s);
  CHECK(told->replies == "hello");
}

TEST_CASE("a worker that is drained gets nothing new, ends its calls, and leaves") {
  site s;
  worker& left = s.add("left");
  worker& right = s.add("right");
  s.await_workers(2);
  const auto told = s.call("tick 20", only("left"));
  REQUIRE(s.until([&] { return left.begun.size() == 1; }));
  const worker_id id = status_of(s, "left").id;
  bool is_drained = false;
  auto drain = [&]() -> task<void> {
    co_await s.workers->drain(id);
    is_drained = true;
    // Again, when it is gone: at once.
    co_await s.workers->drain(id);
  };
  const auto draining = s.leader.start(drain());
  s.sim.run_for(10ms);
  CHECK(status_of(s, "left").is_draining);
  for (int i = 0; i < 4; ++i) (void)s.call("hold");
  REQUIRE(s.until([&] { return right.begun.size() == 4; }));
  CHECK(!is_drained);
  s.await(*told);
  CHECK(told->count == 20);
  CHECK(!told->why);
  REQUIRE(s.until([&] { return is_drained && draining.is_ready(); }, 1s));
  CHECK(left.begun.size() == 1);
  CHECK(!s.last_loss);
  CHECK(s.workers->workers().size() == 1);
}

TEST_CASE(
    "draining the last worker leaves the queued calls to the next, or to "
    "no_member_left") {
  site s({.in_flight_per_worker = 1, .patience = 200ms});
  worker& left = s.add("left");
  s.await_workers(1);
  const auto asked = s.call("tick 100");
  const auto queued = s.call("echo queued");
  REQUIRE(s.until([&] { return left.begun.size() == 1; }));
  auto drain = [&]() -> task<void> {
    co_await s.workers->drain(status_of(s, "left").id);
  };
  (void)s.leader.start(drain());
  s.await(*queued, 300ms);
  CHECK(queued->why.cause == cause::no_member_left);
  s.await(*asked);
  CHECK(asked->count == 100);
}

TEST_CASE("what a handler throws travels with its text, and ends its call alone") {
  site s;
  worker& left = s.add("left");
  s.await_workers(1);
  const auto threw = s.call("throw");
  s.await(*threw);
  CHECK(!threw->has_stream);
  CHECK(threw->why.cause == cause::handler_failed);
  CHECK(threw->why.detail == "no such model");
  CHECK(threw->why.rank == 1);
  CHECK(threw->why.world == world_name("left"));
  const auto busy = s.call("busy");
  s.await(*busy);
  CHECK(busy->why.cause == cause::overloaded);
  CHECK(busy->why.detail == "no blocks left");
  // No other worker was asked.
  CHECK(left.begun.size() == 2);
  CHECK(s.workers->workers().at(0).depth == 0);
}

TEST_CASE("a dispatcher is used on one reactor") {
  site s;
  process other(s, "other");
  s.add("left");
  s.await_workers(1);
  auto call = [&]() -> task<void> {
    const std::string request = "echo hello";
    auto told = co_await outcome(s.workers->call(request));
    CHECK(told.error().cause == cause::invalid_argument);
  };
  auto called = other.start(call());
  REQUIRE(s.until([&] { return called.is_ready(); }));
  called.get();
}

TEST_SUITE_END();

}  // namespace manyworlds::dispatch_tests
