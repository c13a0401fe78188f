// Calls edges: named methods, answered by instances that come and go.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "calls_site.hpp"
#include "manyworlds/mpmd.hpp"
#include "mpmd/call_head.hpp"
#include "mpmd/role_group_core.hpp"
#include "support/eventually.hpp"

namespace manyworlds::calls_edge_tests {

TEST_SUITE_BEGIN("mpmd");

TEST_CASE("graph B12: results of several instances stand in the order of ranks") {
  site s(3);
  s.until(3);
  CHECK(s.run(s.group.all("who", "x")) == std::vector<std::string>{"0:x", "1:x", "2:x"});
  CHECK(s.run(s.group.scatter("who", {"a", "b", "c"})) ==
        std::vector<std::string>{"0:a", "1:b", "2:c"});
  CHECK(s.run(s.group.at(2, "who", "y")) == "2:y");
  CHECK(s.run(s.group.first("who", "z")) == "0:z");
  std::vector<std::string> many;
  for (int n = 0; n < 200; ++n) many.push_back(std::to_string(n));
  const auto results = s.run(s.group.batch("who", many));
  REQUIRE(results.size() == 200);
  bool is_spread = false;
  for (std::size_t n = 0; n < 200; ++n) {
    CHECK(results[n].substr(2) == many[n]);
    is_spread = is_spread || results[n][0] != results[0][0];
  }
  CHECK(is_spread);
}

TEST_CASE("graph B12: a batch of 5 over 2 instances is 3 and 2, in order") {
  site s(2);
  s.until(2);
  const std::vector<std::string> five{"a", "b", "c", "d", "e"};
  CHECK(s.run(s.group.batch("who", five)) ==
        std::vector<std::string>{"0:a", "0:b", "0:c", "1:d", "1:e"});
  CHECK(s.run(s.group.batch("who", {"x"})) == std::vector<std::string>{"0:x"});
  CHECK(s.run(s.group.batch("who", {})).empty());
}

TEST_CASE("graph B12: of an optional role without instances all is nothing") {
  using detail::asked_ones;
  using detail::group_question;
  node own;
  detail::role_group_core core{role_group::options()};
  core.begin("ask", {"router", 0}, 0);
  const auto ask = [&](asked_ones whom) -> task<std::size_t> {
    group_question asked;
    asked.method = "who";
    asked.whom = whom;
    asked.arguments.emplace_back("x");
    asked.how.within = whom == asked_ones::all ? 10min : 50ms;
    detail::result_taker take = [](std::size_t, std::string_view) {};
    const auto ended = co_await core.ask_several(std::move(asked), std::move(take), true);
    co_return ended.size();
  };
  CHECK(own.run(ask(asked_ones::all)) == 0);
  // An argument must not be lost.
  try {
    static_cast<void>(own.run(ask(asked_ones::in_parts)));
    FAIL("no instance was there");
  } catch (const world_error& e) {
    CHECK(e.cause() == cause::timed_out);
    CHECK(e.failure().text().find("0 of 1 instances") != std::string::npos);
    CHECK(e.failure().text().find("who at edge \"ask\"") != std::string::npos);
  }
}

TEST_CASE("graph: all instances are asked once the least number of them is there") {
  site s(1);
  CHECK(s.run(s.group.all("who", "x")) == std::vector<std::string>{"0:x"});
}

TEST_CASE("graph B16: of four instances one fails by name, and three answer") {
  site s(4);
  s.until(4);
  s.answerers[1]->break_once();
  const auto all = s.run(s.group.outcomes("break", ""));
  REQUIRE(all.size() == 4);
  for (const std::size_t n : {0u, 2u, 3u}) CHECK(all[n].result == "mended");
  CHECK_FALSE(all[1]);
  CHECK(all[1].from == instance_id{"decode", 1});
  CHECK(all[1].why.breaks_world());
  CHECK(all[1].why.text().find("break of instance 1 at edge") != std::string::npos);
}

TEST_CASE("graph B16: of a batch the calls of one instance fail, and the others answer") {
  site s(4);
  s.until(4);
  s.answerers[2]->fails = true;
  const std::vector<std::string> five{"a", "b", "c", "d", "e"};
  const auto all = s.run(s.group.batch_outcomes("may fail", five));
  REQUIRE(all.size() == 5);
  for (const std::size_t n : {0u, 1u, 2u, 4u}) CHECK(all[n].result == five[n]);
  CHECK_FALSE(all[3]);
  CHECK(all[3].from == instance_id{"decode", 2});
  CHECK(all[3].why.cause == cause::handler_failed);
  CHECK(all[3].why.text().find("may fail of instance 2 at edge") != std::string::npos);
}

TEST_CASE("graph B16: an instance that is much slower than the others is named once") {
  site s(4);
  s.until(4);
  static_cast<void>(s.run(s.group.all("who", "")));
  s.answerers[1]->is_holding = true;
  auto asked = s.own.rt.start(s.group.all("hold", ""));
  CHECK(s.own.log.gets("decode.1 has not ended after"));
  // One that the machine holds up may not have ended yet.
  const bool says_how_many = s.own.log.has("the other 3 of 4 instances") ||
                             s.own.log.has("the other 2 of 4 instances");
  CHECK(says_how_many);
  s.answerers[1]->is_holding = false;
  CHECK(s.own.finish(asked).size() == 4);
  CHECK(s.own.log.count("not ended after", log_level::warning) == 1);
}

TEST_CASE("graph B13: an error of a call names edge, instance and method") {
  site s(1);
  s.until(1);
  const failure missing = s.why(s.group.at(0, "whom", ""));
  CHECK(missing.cause == cause::unsupported);
  CHECK(missing.text().find("did you mean \"who\"") != std::string::npos);
  CHECK(missing.text().find("whom of instance 0 at edge") != std::string::npos);
  const failure thrown = s.why(s.group.any("fail", ""));
  CHECK(thrown.cause == cause::handler_failed);
  CHECK(thrown.text().find("fail of instance 0 at edge") != std::string::npos);
  CHECK(thrown.text().find("out of luck") != std::string::npos);
  const auto nameless = [&]() -> task<std::string> { return s.group.any("", ""); };
  CHECK_THROWS_AS(s.run(nameless()), std::invalid_argument);
}

TEST_CASE("graph B15: a call that was lost with its instance has an unknown outcome") {
  site s(1);
  s.until(1);
  s.answerers[0]->break_once();
  const auto once = [&]() -> task<bool> {
    try {
      static_cast<void>(co_await s.group.any("break", ""));
    } catch (const unknown_outcome& e) {
      co_return e.failure().breaks_world();
    }
    co_return false;
  };
  CHECK(s.run(once()));
  CHECK(s.answerers[0]->ids().size() == 1);
  // The edge forms again.
  CHECK(s.run(s.group.any("who", "x")) == "0:x");
}

TEST_CASE("graph B15: a call that may be repeated is, under its id") {
  site s(1);
  s.until(1);
  s.answerers[0]->break_once();
  const role_call_options again{.within = 20s, .may_repeat = true};
  CHECK(s.run(s.group.at(0, "break", "", again)) == "mended");
  const auto ids = s.answerers[0]->ids();
  REQUIRE(ids.size() == 2);
  CHECK(ids[0] == ids[1]);
}

TEST_CASE("graph B15: what a dead answerer has done is not done again by the next one") {
  // Effects that all answerers share, by the ids of the calls.
  struct {
    std::mutex mutex;
    std::multiset<std::uint64_t> asked;
    std::set<std::uint64_t> done;
    std::atomic<int> dies = -1;
  } shared;
  const auto once = [&](role_methods& to, std::uint32_t index) {
    to.on("once", [&shared, index](role_call& call) -> task<std::string> {
      bool is_new = false;
      {
        const std::lock_guard lock(shared.mutex);
        shared.asked.insert(call.id());
        is_new = shared.done.insert(call.id()).second;
      }
      // It is killed between what it does and its answer.
      if (is_new) shared.dies = static_cast<int>(index);
      if (is_new) co_await sleep_for(1min);
      co_return "done";
    });
  };
  site s(2, {}, once);
  s.until(2);
  const role_call_options again{.within = 20s, .may_repeat = true};
  auto asked = s.own.rt.start(s.group.any("once", "", again));
  REQUIRE(testing::eventually([&] { return shared.dies.load() >= 0; }));
  s.answerers[static_cast<std::size_t>(shared.dies.load())].reset();
  CHECK(s.own.finish(asked) == "done");
  const std::lock_guard lock(shared.mutex);
  CHECK(shared.asked.size() == 2);
  CHECK(shared.done.size() == 1);
}

TEST_CASE("graph B14: a call ends by its deadline, and so does its method") {
  site s(1);
  s.until(1);
  const role_call_options brief{.within = 50ms};
  CHECK(s.why(s.group.any("slow", "", brief)).cause == cause::timed_out);
  CHECK(testing::eventually([&] { return s.answerers[0]->was_stopped.load(); }));
}

TEST_CASE("graph B13: a call waits for an instance that is not there yet") {
  site s(1);
  s.until(1);
  const role_call_options brief{.within = 100ms};
  CHECK(s.why(s.group.at(1, "who", "x", brief)).cause == cause::timed_out);
  auto waits = s.own.rt.start(s.group.at(1, "who", "x"));
  s.add(1);
  CHECK(s.own.finish(waits) == "1:x");
}

TEST_CASE("graph: a role that drains ends what it has begun, and takes nothing new") {
  site s(2);
  s.until(2);
  s.answerers[0]->own.run(s.answerers[0]->methods.drain());
  for (int n = 0; n < 8; ++n) CHECK(s.run(s.group.any("who", "x")) == "1:x");
  CHECK(s.run(s.group.all("who", "x")) == std::vector<std::string>{"1:x"});
}

TEST_CASE("graph: methods have names, once each") {
  role_methods all;
  const auto answer = [](role_call&) -> task<std::string> { co_return ""; };
  all.on("a", answer);
  CHECK_THROWS_AS(all.on("a", answer), std::invalid_argument);
  CHECK_THROWS_AS(all.on("", answer), std::invalid_argument);
  CHECK_THROWS_AS(all.on(std::string(65, 'x'), answer), std::invalid_argument);
  CHECK_THROWS_AS(all.on("b", nullptr), std::invalid_argument);
  CHECK_THROWS_AS(role_group({.tries = 0}), std::invalid_argument);
}

TEST_CASE("graph B75: the head of a call is read, or it is none") {
  using detail::call_head;
  const call_head head{7, "generate", {"router", 3}, detail::call_form::values};
  const std::string all = detail::bytes_of(head) + "rest";
  std::string_view request = all;
  CHECK(detail::take_call_head(request) == head);
  CHECK(request == "rest");
  for (std::size_t cut = 0; cut < all.size() - 4; ++cut) {
    std::string_view part = std::string_view(all).substr(0, cut);
    CHECK_FALSE(detail::take_call_head(part));
  }
  std::string long_name = all;
  long_name[12] = '\x7f';
  std::string_view wrong = long_name;
  CHECK_FALSE(detail::take_call_head(wrong));
  std::string other_form = all;
  other_form[13] = '\2';
  wrong = other_form;
  CHECK_FALSE(detail::take_call_head(wrong));
}

TEST_SUITE_END();

}  // namespace manyworlds::calls_edge_tests
