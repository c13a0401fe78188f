// A dispatcher over workers in processes of their own, which are killed and started again
// (A9).
#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "process_fixture.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

namespace {

struct answer_of_call {
  std::vector<std::string> replies;
  failure why;
};

/// CPU time of the test's own process.
duration cpu_time() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& t) {
    return std::chrono::seconds(t.tv_sec) + std::chrono::microseconds(t.tv_usec);
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

class dispatching {
 public:
  explicit dispatching(engine_kind e, dispatch_options options = {})
      : at(e), lead(at), options_(options) {}
  ~dispatching() {
    lead.rt.stop();
    for (auto& each : leading_) (void)each.wait_for(10s);
    // With its tasks gone nothing else uses it.
    workers_.reset();
  }

  process start_worker(const std::string& name) {
    process p = at.member();
    p.order("work " + name);
    return p;
  }
  /// Serves that name's workers for as long as they come back.
  void serve(const std::string& name) {
    auto body = [this](world& w) { return workers_->serve(w); };
    world_options o = lead.patience;
    o.name = name;
    o.rank = 0;
    o.size = 2;
    leading_.push_back(
        lead.rt.start(keep(lead.rt, lead.store, o, body, after_close::form_again)));
  }
  void await_workers(std::size_t count) {
    auto come = [this](std::size_t count) -> task<void> {
      while (workers_->workers().size() != count) co_await sleep_for(5ms);
    };
    lead.run(come(count));
  }
  started<answer_of_call> call(std::string request) {
    return lead.rt.start(answer(std::move(request)));
  }

  site at;
  leader lead;

 private:
  task<answer_of_call> answer(std::string request) {
    answer_of_call got;
    auto replies = co_await outcome(workers_->call(request).within(20s));
    got.why = replies.error();
    while (replies) {
      auto next = co_await outcome(replies->next());
      got.why = next.error();
      if (!next || !*next) break;
      got.replies.emplace_back(reinterpret_cast<const char*>((*next)->data()),
                               (*next)->size());
    }
    co_return got;
  }

  dispatch_options options_;
  std::unique_ptr<dispatcher> workers_ = std::make_unique<dispatcher>(options_);
  std::vector<started<void>> leading_;
};

}  // namespace

TEST_CASE(
    "a worker killed with requests outstanding: another one answers them, and every "
    "request is answered exactly once (A9)") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    dispatching d(e);
    d.serve("left");
    d.serve("right");
    process left = d.start_worker("left");
    process right = d.start_worker("right");
    d.await_workers(2);
    std::vector<started<answer_of_call>> calls;
    for (int i = 0; i < 20; ++i) calls.push_back(d.call("late " + std::to_string(i)));
    left.expect("asked late");
    left.kill();
    for (int i = 0; i < 20; ++i) {
      const answer_of_call got = d.lead.finish(calls[static_cast<std::size_t>(i)]);
      CAPTURE(got.why.text());
      REQUIRE(got.replies.size() == 1);
      CHECK(got.replies[0] == std::to_string(i));
      right.expect("asked late " + std::to_string(i));
    }
  }
}

TEST_CASE(
    "all workers dead: no_member_left, without spinning; a worker that is started "
    "again is given calls again (A9)") {
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    dispatching d(e, {.patience = 1s});
    d.serve("left");
    d.serve("right");
    process left = d.start_worker("left");
    process right = d.start_worker("right");
    d.await_workers(2);
    auto held = d.call("hold");
    auto other = d.call("hold");
    left.expect("asked hold");
    right.expect("asked hold");
    left.kill();
    right.kill();
    const duration before = cpu_time();
    CHECK(d.lead.finish(held).why.cause == cause::no_member_left);
    CHECK(d.lead.finish(other).why.cause == cause::no_member_left);
    // They waited for a second.
    CHECK(cpu_time() - before < 500ms);
    left = d.start_worker("left");
    d.await_workers(1);
    auto again = d.call("echo again");
    CHECK(d.lead.finish(again).replies == std::vector<std::string>{"again"});
    left.expect("asked echo again");
  }
}

TEST_CASE(
    "a worker killed between two tokens: the stream fails and says how many came, "
    "and the leader's other streams go on") {
  dispatching d(engine_kind::automatic);
  d.serve("left");
  d.serve("right");
  process left = d.start_worker("left");
  d.await_workers(1);
  auto cut = d.call("tokens 1000");
  left.expect("asked tokens");
  process right = d.start_worker("right");
  d.await_workers(2);
  auto whole = d.call("tokens 50");
  right.expect("asked tokens 50");
  left.kill();
  const answer_of_call lost = d.lead.finish(cut);
  CHECK(lost.why.cause == cause::peer_died);
  const std::string count = std::to_string(lost.replies.size());
  CAPTURE(lost.why.text());
  CHECK(!lost.replies.empty());
  CHECK(lost.why.text().find(count + (count == "1" ? " reply" : " replies")) !=
        std::string::npos);
  const answer_of_call got = d.lead.finish(whole);
  CHECK(!got.why);
  CHECK(got.replies.size() == 50);
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
