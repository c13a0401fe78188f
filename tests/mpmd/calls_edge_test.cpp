// Calls edges: named methods, answered by instances that come and go.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "../world/world_fixture.hpp"
#include "manyworlds/mpmd.hpp"
#include "mpmd/call_head.hpp"
#include "support/eventually.hpp"

namespace manyworlds::calls_edge_tests {

using namespace std::chrono_literals;
using world_tests::node;

TEST_SUITE_BEGIN("mpmd");

namespace {

std::string name_of_pair(std::uint32_t index) {
  return "ask/router.0-decode." + std::to_string(index);
}

/// An instance that answers, on a runtime of its own.
class answerer {
 public:
  answerer(memory_store& store, std::uint32_t index) : store_(store), index_(index) {
    methods
        .on("who",
            [this](role_call& call) -> task<std::string> {
              co_return std::to_string(index_) + ":" + std::string(call.data());
            })
        .on("fail",
            [](role_call&) -> task<std::string> {
              throw std::runtime_error("out of luck");
              co_return "";
            })
        .on("break",
            [this](role_call& call) -> task<std::string> {
              note(call.id());
              if (breaks_.exchange(false)) {
                world_->fail("for this test");
                co_await sleep_for(20s);
              }
              co_return "mended";
            })
        .on("slow", [this](role_call& call) -> task<std::string> {
          const bool is_bounded = call.deadline().has_value();
          const auto cancelled = [this] { was_stopped = true; };
          const std::stop_callback told(call.stop_token(), cancelled);
          co_await sleep_for(20s);
          co_return is_bounded ? "late" : "unbounded";
        });
    serving_ = own.rt.start(serve());
  }
  ~answerer() {
    own.rt.stop();
    own.finish(*serving_);
  }

  void break_once() { breaks_ = true; }
  [[nodiscard]] std::vector<std::uint64_t> ids() {
    const std::lock_guard lock(mutex_);
    return ids_;
  }

  node own;
  role_methods methods;
  std::atomic<bool> was_stopped = false;

 private:
  void note(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    ids_.push_back(id);
  }
  task<void> serve() {
    const auto in_world = [this](world& w) -> task<void> {
      world_ = &w;
      return methods.serve(w);
    };
    const world_name name(name_of_pair(index_));
    co_await keep(own.rt, store_, {.name = name, .rank = 1, .size = 2}, in_world,
                  after_close::form_again);
  }

  memory_store& store_;
  const std::uint32_t index_;
  world* world_ = nullptr;
  std::atomic<bool> breaks_ = false;
  std::mutex mutex_;
  std::vector<std::uint64_t> ids_;
  std::optional<started<void>> serving_;
};

/// The asking instance, and a number of those that answer.
class site {
 public:
  explicit site(std::uint32_t count, role_group::options options = {}) : group(options) {
    for (std::uint32_t n = 0; n < count; ++n) add(n);
    asking_ = own.rt.start(ask());
  }
  ~site() {
    own.rt.stop();
    own.finish(*asking_);
  }
  void add(std::uint32_t index) {
    answerers.push_back(std::make_unique<answerer>(store, index));
  }
  template <class T>
  T run(task<T> asked) {
    return own.run(std::move(asked));
  }
  /// Waits until that many are there.
  void until(std::size_t count) {
    const auto wait = [&]() -> task<void> {
      while (group.members().size() < count) co_await sleep_for(1ms);
    };
    own.run(wait());
  }
  /// Returns why a call ends.
  failure why(task<std::string> asked) {
    const auto ask_it = [](task<std::string> one) -> task<failure> {
      try {
        static_cast<void>(co_await std::move(one));
      } catch (const world_error& e) {
        co_return e.failure();
      }
      co_return failure();
    };
    return own.run(ask_it(std::move(asked)));
  }

  memory_store store;
  node own;
  role_group group;
  std::vector<std::unique_ptr<answerer>> answerers;

 private:
  task<void> ask() {
    const auto body = [this](scope& s) -> task<void> {
      for (std::uint32_t n = 0; n < 3; ++n) s.spawn(ask_one(n));
      co_return;
    };
    co_await scope::run(body);
  }
  task<void> ask_one(std::uint32_t index) {
    const auto in_world = [this, index](world& w) -> task<void> {
      const instance_id peer{"decode", index};
      return group.reach(w, peer);
    };
    const world_name name(name_of_pair(index));
    co_await keep(own.rt, store, {.name = name, .rank = 0, .size = 2}, in_world,
                  after_close::form_again);
  }

  std::optional<started<void>> asking_;
};

}  // namespace

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

TEST_CASE("graph: all instances are asked once the least number of them is there") {
  site s(1);
  CHECK(s.run(s.group.all("who", "x")) == std::vector<std::string>{"0:x"});
}

TEST_CASE("graph B16: of several instances one fails by name, and the others answer") {
  site s(3);
  s.until(3);
  s.answerers[1]->break_once();
  const auto all = s.run(s.group.outcomes("break", ""));
  REQUIRE(all.size() == 3);
  for (const std::size_t n : {0u, 2u}) CHECK(all[n].result == "mended");
  CHECK_FALSE(all[1]);
  CHECK(all[1].from == instance_id{"decode", 1});
  CHECK(all[1].why.breaks_world());
  CHECK(all[1].why.text().find("break of instance 1 at edge") != std::string::npos);
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
  const call_head head{7, "generate", {"router", 3}};
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
}

TEST_SUITE_END();

}  // namespace manyworlds::calls_edge_tests
