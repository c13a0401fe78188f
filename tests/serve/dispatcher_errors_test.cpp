// Dispatcher: what the errors of calls say, each of them.
#include "dispatch_fixture.hpp"

namespace manyworlds::dispatch_tests {

TEST_SUITE_BEGIN("serve");

namespace {

struct said {
  const char* name;
  failure why;
  std::vector<const char*> parts;
};

/// Every way in which a call ends by an error, and what its text must name.
std::vector<said> all_errors() {
  std::vector<said> all;
  const auto at_a_worker = {"left@1", "rank 1", "pid ", "call 1 of decode"};
  const auto nowhere = {"call 1 of decode: "};
  {
    site s({.name = "decode"});
    s.add("left");
    s.await_workers(1);
    const auto late = s.call("hold", 100ms);
    s.await(*late);
    all.push_back({"timed out at a worker", late->why, at_a_worker});
  }
  {
    site s({.patience = 1h, .name = "decode"});
    const auto late = s.call("hold", 100ms);
    s.await(*late);
    all.push_back({"timed out in the queue", late->why, nowhere});
  }
  {
    site s({.patience = 100ms, .name = "decode"});
    const auto lonely = s.call("hold");
    s.await(*lonely);
    all.push_back({"no worker", lonely->why, nowhere});
  }
  {
    site s({.queue = 0, .patience = 1h, .name = "decode"});
    const auto refused = s.call("hold");
    s.await(*refused);
    all.push_back({"overloaded", refused->why, nowhere});
  }
  {
    site s({.name = "decode"});
    std::stop_source gone;
    gone.request_stop();
    const auto refused = s.call("hold", duration::max(), gone.get_token());
    s.await(*refused);
    all.push_back({"cancelled before", refused->why, nowhere});
  }
  for (const char* request : {"throw", "busy"}) {
    site s({.name = "decode"});
    s.add("left");
    s.await_workers(1);
    const auto thrown = s.call(request);
    s.await(*thrown);
    all.push_back({request, thrown->why, at_a_worker});
  }
  {
    site s({.tries = 1, .name = "decode"});
    worker& left = s.add("left");
    s.await_workers(1);
    const auto lost = s.call("hold");
    REQUIRE(s.until([&] { return left.begun.size() == 1; }));
    left.kill();
    s.await(*lost);
    all.push_back({"lost", lost->why, at_a_worker});
  }
  {
    site s({.name = "decode"});
    s.add("left", {.largest_request = 10});
    s.await_workers(1);
    const auto large = s.call("echo " + std::string(100, 'x'));
    s.await(*large);
    all.push_back({"too large", large->why, at_a_worker});
  }
  {
    site s({.patience = 1h, .name = "decode"});
    const auto waiting = s.call("hold");
    s.sim.run_for(1ms);
    s.workers.reset();
    s.await(*waiting);
    all.push_back({"destroyed", waiting->why, nowhere});
  }
  {
    site s({.patience = 1h, .name = "decode"});
    s.add("left");
    s.await_workers(1);
    s.leader.rt->stop(10s);
    s.sim.run_for(10ms);
    const auto refused = s.call("echo x");
    s.await(*refused);
    all.push_back({"stopping", refused->why, nowhere});
  }
  return all;
}

}  // namespace

TEST_CASE("every error of a call names the call, and the worker if one was asked") {
  for (const said& each : all_errors()) {
    CAPTURE(std::string(each.name));
    const std::string text = each.why.text();
    CAPTURE(text);
    CHECK(bool(each.why));
    CHECK(each.why.operation == operation_kind::call);
    CHECK(text.find("world: ") == std::string::npos);
    for (const char* part : each.parts) CHECK(text.find(part) != std::string::npos);
  }
}

TEST_CASE("what a wait for a reply ends by names the call and its worker too") {
  site s({.name = "decode"});
  s.add("left");
  s.await_workers(1);
  const auto told = s.open("first");
  s.await(*told);
  REQUIRE(told->has_stream);
  failure late;
  failure moved;
  auto wait = [&]() -> task<void> {
    (void)co_await told->stream.next();
    late = (co_await outcome(told->stream.next().within(10ms))).error();
    reply_stream taken = std::move(told->stream);
    moved = (co_await outcome(told->stream.next())).error();
  };
  s.run(wait());
  CAPTURE(late.text());
  for (const char* part :
       {"left@1", "timed out", "rank 1", "call 1 of decode", "1 reply of the call"})
    CHECK(late.text().find(part) != std::string::npos);
  CHECK(moved.text().starts_with("call: invalid argument"));
}

TEST_SUITE_END();

}  // namespace manyworlds::dispatch_tests
