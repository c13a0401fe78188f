// Dispatcher: what becomes of the calls of a worker that is stopped and may go on.
#include "dispatch_fixture.hpp"

namespace manyworlds::dispatch_tests {

TEST_SUITE_BEGIN("serve");

namespace {

constexpr duration in_time = 1500ms;

/// Starts `count` calls, of which a stopped worker gets its share.
std::vector<std::shared_ptr<story>> ask(site& s, int count) {
  std::vector<std::shared_ptr<story>> told;
  for (int i = 0; i < count; ++i) told.push_back(s.call("echo " + std::to_string(i)));
  return told;
}

bool are_over(const std::vector<std::shared_ptr<story>>& told) {
  return std::all_of(told.begin(), told.end(), [](const auto& t) { return t->is_over; });
}

void check_answered_once(const std::vector<std::shared_ptr<story>>& told) {
  for (std::size_t i = 0; i < told.size(); ++i) {
    CAPTURE(told[i]->why.text());
    CHECK(told[i]->replies == std::to_string(i));
    CHECK(!told[i]->why);
  }
}

}  // namespace

TEST_CASE(
    "a worker is stopped: its calls are answered by another within a second and a half; "
    "when it goes on its answers are dropped, and its world is up") {
  site s;
  worker& left = s.add("left");
  worker& right = s.add("right");
  s.await_workers(2);
  left.stop();
  const auto told = ask(s, 8);
  CHECK(s.until([&] { return are_over(told); }, in_time));
  check_answered_once(told);
  CHECK(s.workers->counters().asked_twice == 4);
  CHECK(s.workers->counters().answered_by_another == 4);
  CHECK(right.begun.size() == 8);
  CHECK(s.leader.rt->dump().find("4 asked twice, 4 of them answered by another") !=
        std::string::npos);
  left.go_on();
  // Its places are free when it has heard of the cancellations.
  REQUIRE(s.until([&] {
    const auto now = s.workers->workers();
    return now.size() == 2 && now[0].depth == 0 && now[1].depth == 0 &&
           !now[0].is_suspect && !now[1].is_suspect;
  }));
  check_answered_once(told);
  CHECK(s.workers->counters().answered == 8);
  CHECK(s.led.at("left")->epoch() == 1);
  CHECK(left.ended == static_cast<int>(left.begun.size()));
}

TEST_CASE("a worker goes on before another has answered: its own answer wins, once") {
  site s;
  worker& left = s.add("left");
  s.await_workers(1);
  const auto held = s.call("tick 1");
  left.stop();
  worker& right = s.add("right");
  s.await_workers(2);
  right.stop();
  s.sim.run_for(1300ms);
  left.go_on();
  s.await(*held);
  CHECK(held->replies == "0");
  CHECK(!held->why);
  right.go_on();
  s.sim.run_for(1s);
  CHECK(held->replies == "0");
  CHECK(s.workers->counters().answered == 1);
}

TEST_CASE("no more calls are asked twice than the budget allows; answers refill it") {
  site s({.ask_again = 2});
  worker& left = s.add("left");
  s.add("right");
  s.await_workers(2);
  left.stop();
  const auto told = ask(s, 12);
  s.sim.run_for(2s);
  CHECK(s.workers->counters().asked_twice == 2);
  // The others are given away when its world breaks.
  CHECK(s.until([&] { return are_over(told); }, 10s));
  check_answered_once(told);
  CHECK(s.workers->counters().asked_twice == 2);
  left.go_on();
  s.await_workers(2);
  // Twelve answers and these: two calls more.
  for (int i = 0; i < 8; ++i) s.await(*s.call("echo x"));
  left.stop();
  const auto later = ask(s, 12);
  s.sim.run_for(2s);
  CHECK(s.workers->counters().asked_twice == 4);
  CHECK(s.until([&] { return are_over(later); }, 10s));
}

TEST_CASE("a budget of zero asks no call twice") {
  site s({.ask_again = 0});
  s.add("left").stop();
  worker& right = s.add("right");
  s.await_workers(1);
  right.stop();
  s.add("third");
  const auto told = s.call("echo hello");
  s.await(*told);
  CHECK(s.workers->counters().asked_twice == 0);
}

TEST_CASE("where most workers seem stopped at once no call is asked twice") {
  for (const int stopped : {3, 4}) {
    CAPTURE(stopped);
    site s;
    std::vector<worker*> all;
    for (const char* name : {"a", "b", "c", "d"}) all.push_back(&s.add(name));
    s.await_workers(4);
    for (int i = 0; i < stopped; ++i) all[static_cast<std::size_t>(i)]->stop();
    const auto told = ask(s, 16);
    s.sim.run_for(3s);
    CHECK(s.workers->counters().asked_twice == 0);
    for (worker* w : all) w->go_on();
    CHECK(s.until([&] { return are_over(told); }, 10s));
    check_answered_once(told);
    std::size_t begun = 0;
    for (const worker* w : all) begun += w->begun.size();
    CHECK(begun == 16);
  }
}

TEST_CASE(
    "once its replies have begun a call stays with its worker while that is stopped") {
  site s;
  worker& left = s.add("left");
  s.await_workers(1);
  const auto told = s.call("tick 100");
  REQUIRE(s.until([&] { return told->count >= 3; }));
  worker& right = s.add("right");
  s.await_workers(2);
  left.stop();
  s.sim.run_for(3s);
  CHECK(right.begun.empty());
  left.go_on();
  s.await(*told);
  CHECK(told->count == 100);
  CHECK(!told->why);
}

TEST_CASE("a large request that a stopped worker does not take is asked of another") {
  site s;
  worker& left = s.add("left");
  s.await_workers(1);
  left.stop();
  const auto told = s.call("echo " + std::string(4'000'000, 'x'));
  worker& right = s.add("right");
  s.await_workers(2);
  // A transfer that has begun is settled within a second more.
  CHECK(s.until([&] { return told->is_over; }, 3s));
  CHECK(told->replies.size() == 4'000'000);
  CHECK(right.begun.size() == 1);
  left.go_on();
}

TEST_CASE("a call that its second worker refuses as too large stays with the first") {
  site s;
  worker& left = s.add("left");
  s.await_workers(1);
  left.stop();
  const std::string large(2000, 'x');
  const auto told = s.call("echo " + large);
  s.add("right", {.largest_request = 1000});
  s.await_workers(2);
  REQUIRE(s.until([&] { return s.workers->counters().asked_twice > 0; }, in_time));
  s.sim.run_for(500ms);
  CHECK(!told->is_over);
  left.go_on();
  s.await(*told);
  CHECK(!told->why);
  CHECK(told->replies == large);
}

TEST_CASE(
    "a call that loses its worker while it waits for a second one goes to one that was "
    "silent for a moment") {
  site s;
  s.add("busy", {.concurrent = 1});
  s.await_workers(1);
  const auto held = s.call("first");
  REQUIRE(s.until([&] { return held->count == 1; }));
  worker& left = s.add("left", {.concurrent = 1});
  s.await_workers(2);
  left.stop();
  const auto told = s.call("echo hello");
  worker& right = s.add("right", {.concurrent = 1});
  s.await_workers(3);
  s.sim.run_for(300ms);
  right.stop();
  REQUIRE(s.until([&] { return s.workers->queued() == 1; }, in_time));
  left.kill();
  REQUIRE(s.until([&] { return s.workers->workers().size() == 2; }, 100ms));
  s.sim.run_for(100ms);
  REQUIRE(!s.workers->workers()[1].is_suspect);
  CHECK(s.workers->queued() == 1);
  right.go_on();
  CHECK(s.until([&] { return told->is_over; }, in_time));
  CHECK(told->replies == "hello");
}

TEST_CASE("a policy decides for the second worker too: it is shown the others only") {
  site s;
  std::vector<worker*> all;
  for (const char* name : {"a", "b", "c"}) all.push_back(&s.add(name));
  s.await_workers(3);
  // Always the last of those that are shown.
  const auto last = [](std::span<const worker_status> shown) {
    return std::optional<std::size_t>(shown.size() - 1);
  };
  all[2]->stop();
  const auto told = s.call("echo hello", last);
  CHECK(s.until([&] { return told->is_over; }, in_time));
  CHECK(told->replies == "hello");
  CHECK(all[1]->begun.size() == 1);
  CHECK(all[0]->begun.empty());
}

TEST_CASE("a call that is given up while two workers have it is cancelled at both") {
  site s;
  worker& left = s.add("left");
  s.await_workers(1);
  std::stop_source gone;
  const auto told = s.call("hold", duration::max(), gone.get_token());
  REQUIRE(s.until([&] { return left.begun.size() == 1; }));
  worker& right = s.add("right");
  s.await_workers(2);
  left.stop();
  REQUIRE(s.until([&] { return right.begun.size() == 1; }, in_time));
  CHECK(right.earlier_tries[0] == 1);
  CHECK(right.ids[0] == left.ids[0]);
  gone.request_stop();
  s.await(*told);
  CHECK(told->why.cause == cause::cancelled);
  left.go_on();
  CHECK(s.until([&] { return left.ended == 1 && right.ended == 1; }));
  CHECK(left.stopped_early + right.stopped_early == 2);
}

TEST_SUITE_END();

}  // namespace manyworlds::dispatch_tests
