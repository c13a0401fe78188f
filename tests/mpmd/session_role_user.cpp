// A role that is a session, for tests: instance 0 calls its workers again and again and
// prints what becomes of that, a line at a time.
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/mpmd.hpp"
#include "manyworlds/mw.hpp"
#include "manyworlds/spmd.hpp"

namespace {

using namespace std::chrono_literals;

constexpr mw::remote_function<int(int)> load{"load", mw::alone};
constexpr mw::remote_function<int(const int&)> sum_of_loaded{"sum_of_loaded"};

mw::task<int> add_up(mw::worker& me, const int& loaded) {
  std::vector<int> sum{loaded};
  co_await me.world().all_reduce(std::span(sum), mw::sum);
  co_return sum.front();
}

const mw::function_table functions{
    {load, [](const mw::worker& me, int base) { return base + me.id(); }},
    {sum_of_loaded, add_up},
};

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

/// Each worker has loaded 100 and its number: three of them have 303.
mw::task<void> call_till_cancelled(mw::session& workers) {
  const auto loaded = co_await workers.call(load, 100).replayable();
  bool is_well = false;
  for (;;) {
    std::string trouble;
    try {
      const int sum = co_await workers.call(sum_of_loaded, loaded).from(0).within(5s);
      if (sum != 303) say("a wrong sum: " + std::to_string(sum));
    } catch (const mw::world_error& e) {
      trouble = e.what();
    }
    if (trouble.empty() && !is_well) say("the sums are right");
    if (!trouble.empty() && is_well) say("a call failed: " + trouble);
    is_well = trouble.empty();
    co_await mw::sleep_for(10ms);
  }
}

mw::task<void> tell_events(mw::session& of) {
  const mw::session_events events = of.events();
  for (;;) {
    const mw::session_event e = co_await events.next();
    say(std::string(mw::name_of(e.kind)) + " worker " + std::to_string(e.worker) + " " +
        e.text);
  }
}

/// `closes`: after one sum; otherwise it goes on until it is to leave.
mw::task<void> control(mw::role_context& self, bool closes) {
  mw::session_options limits;
  limits.suspect_after = 300ms;
  limits.lost_after = 1s;
  mw::session workers = co_await self.session(limits);
  for (const mw::session_worker& each : workers.describe())
    say("worker " + std::to_string(each.id) + " is process " + std::to_string(each.pid));
  self.ready();
  if (closes) {
    const auto loaded = co_await workers.call(load, 100);
    say("the sum is " +
        std::to_string(co_await workers.call(sum_of_loaded, loaded).from(0)));
    co_await workers.close();
    say("closed");
    co_return;
  }
  co_await mw::when_any(call_till_cancelled(workers), tell_events(workers),
                        self.leaving());
  say("leaves");
  // A controller that is told to forget this leaves its workers to their agents.
  if (self.graph().find_role("forgetful") == nullptr) co_await workers.close();
}

}  // namespace

int main(int argc, char** argv) {
  const bool closes = argc > 1 && std::string_view(argv[1]) == "closes";
  mw::role_context self;
  mw::runtime rt(self.runtime());
  const auto body = [&](mw::scope&) -> mw::task<void> {
    if (self.instance().index > 0) {
      co_await self.work(functions);
      // What a program does at its end may take a while.
      if (closes) co_await mw::sleep_for(self.instance().index * 1s);
      say("worked");
    } else {
      co_await control(self, closes);
    }
  };
  return self.run(rt, body);
}
