// World manager: worlds by name, what is refused, and what subscribers are told.
#include "manyworlds/serve/world_manager.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../world/world_fixture.hpp"
#include "support/eventually.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("serve");

namespace {

world_options named_options(const char* name, rank_t rank, duration form = 10s) {
  return {.name = name, .rank = rank, .size = 2, .form = form};
}

/// Two runtimes, each with a manager.
struct managed {
  memory_store store;
  node a;
  node b;
  world_manager of_a{a.rt, store};
  world_manager of_b{b.rt, store};

  managed() = default;
  managed(const managed&) = delete;
  ~managed() {
    a.run(of_a.remove_all());
    b.run(of_b.remove_all());
  }

  static task<failure> form_one(world_manager& m, world_options o) {
    co_return (co_await outcome(m.form(o))).error();
  }
  static task<failure> reform_one(world_manager& m, world_name name) {
    co_return (co_await outcome(m.reform(name))).error();
  }
  void form(const char* name) {
    auto first = a.rt.start(form_one(of_a, named_options(name, 0)));
    auto second = b.rt.start(form_one(of_b, named_options(name, 1)));
    CHECK(!a.finish(first));
    CHECK(!b.finish(second));
  }
  /// What runs on the home of `a`.
  template <class F>
  auto at_a(F f) {
    auto call = [](F g) -> task<decltype(f())> { co_return g(); };
    return a.run(call(std::move(f)));
  }
  world_status status(const char* name) {
    for (world_status& s : at_a([&] { return of_a.list(); })) {
      if (s.name == world_name(name)) return s;
    }
    return {};
  }
  void await_forming(const char* name) {
    REQUIRE(
        testing::eventually([&] { return status(name).state == world_state::forming; }));
  }
};

task<void> send_word(world_manager& m, std::string name, std::uint64_t word) {
  co_await m[name].send(std::span(&word, 1), to(1 - m[name].rank()));
}

task<std::uint64_t> recv_word(world_manager& m, std::string name) {
  std::uint64_t word = 0;
  co_await m[name].recv(std::span(&word, 1), from(1 - m[name].rank()));
  co_return word;
}

task<void> remove_one(world_manager& m, world_name name) { co_await m.remove(name); }

task<world_event> next_of(world_events stream) { co_return co_await stream.next(); }

}  // namespace

TEST_CASE("worlds are formed, used, listed and removed by name") {
  managed both;
  both.form("left");
  both.form("right");
  for (const char* name : {"left", "right"}) {
    both.a.run(send_word(both.of_a, name, 5));
    CHECK(both.b.run(recv_word(both.of_b, name)) == 5);
  }
  const auto all = both.at_a([&] { return both.of_a.list(); });
  REQUIRE(all.size() == 2);
  CHECK(all[0].name == world_name("left"));
  CHECK(all[0].state == world_state::up);
  CHECK(all[0].epoch == 1);
  CHECK(all[0].rank == 0);
  CHECK(all[0].size == 2);
  CHECK(!all[0].failure);
  CHECK(all[0].suspects.empty());

  both.a.run(remove_one(both.of_a, "left"));
  CHECK(both.at_a([&] { return both.of_a.find("left") == nullptr; }));
  const failure seen = both.b.run(both.of_b["left"].broken());
  CHECK(seen.cause == cause::closed);
  CHECK(both.status("right").state == world_state::up);
}

TEST_CASE(
    "B2: a name that the manager does not know is another error than a broken world") {
  managed both;
  both.form("left");
  CHECK_THROWS_AS(both.a.run(send_word(both.of_a, "lost", 1)), unknown_world);
  CHECK_THROWS_WITH(both.a.run(remove_one(both.of_a, "lost")),
                    "no world \"lost\" here; there are: left");
  both.at_a([&] {
    both.of_a["left"].fail("for this test");
    return 0;
  });
  try {
    both.a.run(send_word(both.of_a, "left", 1));
    FAIL("a broken world took an operation");
  } catch (const world_error& e) {
    CHECK(e.cause() == cause::broken_by_user);
  }
  CHECK(both.status("left").state == world_state::broken);
  CHECK(both.status("left").failure.detail == "for this test");
}

TEST_CASE("B10, W14: a world that could not be formed does not spoil its name") {
  managed both;
  const failure alone =
      both.a.run(managed::form_one(both.of_a, named_options("left", 0, 50ms)));
  CHECK(alone.cause == cause::not_joined);
  CHECK(both.status("left").state == world_state::broken);
  CHECK(both.status("left").failure.cause == cause::not_joined);
  both.form("left");
  CHECK(both.status("left").state == world_state::up);
}

TEST_CASE("wrong options are told, and take no name") {
  managed both;
  CHECK(both.a.run(managed::form_one(both.of_a, {.rank = 0, .size = 2})).cause ==
        cause::invalid_argument);
  CHECK(both.at_a([&] { return both.of_a.list(); }).empty());
}

TEST_CASE("B9, law 6: one name a hundred times in a row, each time at once") {
  managed both;
  for (std::uint64_t i = 1; i <= 100; ++i) {
    both.form("left");
    CHECK(both.status("left").epoch == i);
    if (i % 2 == 0) {
      both.a.run(remove_one(both.of_a, "left"));
    } else {
      both.at_a([&] {
        both.of_a["left"].fail("again");
        return 0;
      });
    }
    (void)both.b.run(both.of_b["left"].broken());
  }
  both.a.run(both.of_a.remove_all());
  both.b.run(both.of_b.remove_all());
  CHECK(access::core(both.a.rt).worlds().snapshot().empty());
  CHECK(access::core(both.b.rt).worlds().snapshot().empty());
}

TEST_CASE("reform gives the next epoch, to which old references refer") {
  managed both;
  both.form("left");
  world& w = both.of_a["left"];
  // Asked before: afterwards the reference means the next epoch.
  auto over = both.a.rt.start(w.broken());
  auto first = both.a.rt.start(managed::reform_one(both.of_a, "left"));
  CHECK(both.a.finish(over).cause == cause::abandoned);
  (void)both.b.run(both.of_b["left"].broken());
  auto second = both.b.rt.start(managed::reform_one(both.of_b, "left"));
  CHECK(!both.a.finish(first));
  CHECK(!both.b.finish(second));
  CHECK(w.epoch() == 2);
  check_alive(both.a, w, both.b, both.of_b["left"]);
}

TEST_CASE("a name is not formed a second time while its world is up or is being formed") {
  managed both;
  auto first = both.a.rt.start(managed::form_one(both.of_a, named_options("left", 0)));
  const failure meanwhile =
      both.a.run(managed::form_one(both.of_a, named_options("left", 0)));
  CHECK(meanwhile.cause == cause::invalid_argument);
  CHECK(meanwhile.detail == "the manager's world left is already being formed");
  CHECK(!both.b.run(managed::form_one(both.of_b, named_options("left", 1))));
  CHECK(!both.a.finish(first));
  const failure again =
      both.a.run(managed::form_one(both.of_a, named_options("left", 0)));
  CHECK(again.cause == cause::invalid_argument);
  CHECK(both.status("left").state == world_state::up);
}

TEST_CASE("remove cuts a forming short") {
  managed both;
  auto forming =
      both.a.rt.start(managed::form_one(both.of_a, named_options("left", 0, 60s)));
  both.await_forming("left");
  both.a.run(remove_one(both.of_a, "left"), 5s);
  CHECK(both.a.finish(forming).cause == cause::broken_by_user);
  CHECK(both.at_a([&] { return both.of_a.list(); }).empty());
}

TEST_CASE("a form that is cancelled gives the world up, and the name is free") {
  managed both;
  auto given_up = [&]() -> task<void> {
    try {
      co_await within(managed::form_one(both.of_a, named_options("left", 0)), 30ms);
    } catch (const timed_out&) {
      co_return;
    }
    throw std::runtime_error("formed alone");
  };
  both.a.run(given_up());
  CHECK(both.status("left").state == world_state::broken);
  both.form("left");
  CHECK(both.status("left").state == world_state::up);
}

TEST_CASE("events tell every subscriber of each world, with epoch, rank and cause") {
  managed both;
  world_events one = both.of_a.events();
  world_events two = both.of_a.events();
  both.form("left");
  both.at_a([&] {
    both.of_a["left"].fail("for this test");
    return 0;
  });
  // Of worlds that the manager knows nothing of as well.
  (void)both.b.run(both.of_b["left"].broken());
  world wa;
  world wb;
  form_two({.name = "apart"}, both.store, both.a, wa, both.b, wb);
  both.b.run(wb.leave());
  for (const world_events& each : {one, two}) {
    const auto check = [&](world_event_kind kind, const char* name, rank_t rank,
                           enum cause why) {
      const world_event e = both.a.run(next_of(each));
      CHECK(e.kind == kind);
      CHECK(e.world == world_name(name));
      CHECK(e.epoch == 1);
      CHECK(e.rank == rank);
      CHECK(e.cause == why);
    };
    check(world_event_kind::formed, "left", 0, cause::none);
    check(world_event_kind::broken, "left", 0, cause::broken_by_user);
    check(world_event_kind::formed, "apart", 0, cause::none);
    check(world_event_kind::closed, "apart", 1, cause::closed);
    CHECK(each.missed() == 0);
  }
}

TEST_CASE("law 9: who does not listen loses the oldest events, and holds up no world") {
  managed both;
  const world_events slow = both.of_a.events(3);
  for (int i = 0; i < 4; ++i) {
    both.form("left");
    both.a.run(remove_one(both.of_a, "left"));
    (void)both.b.run(both.of_b["left"].broken());
  }
  CHECK(slow.missed() == 5);
  CHECK(both.a.run(next_of(slow)).kind == world_event_kind::closed);
  const world_event formed = both.a.run(next_of(slow));
  CHECK(formed.kind == world_event_kind::formed);
  CHECK(formed.epoch == 4);
  CHECK(both.a.run(next_of(slow)).kind == world_event_kind::closed);
}

TEST_CASE("remove_all leaves every world in order, and breaks what is only forming") {
  managed both;
  both.form("left");
  both.form("right");
  auto forming =
      both.a.rt.start(managed::form_one(both.of_a, named_options("third", 0, 60s)));
  both.await_forming("third");
  both.a.run(both.of_a.remove_all(), 5s);
  CHECK(both.a.finish(forming).breaks_world());
  CHECK(both.b.run(both.of_b["left"].broken()).cause == cause::closed);
  CHECK(both.b.run(both.of_b["right"].broken()).cause == cause::closed);
}

TEST_CASE("remove_all ends when those that another task removes are gone, or cut off") {
  for (const duration limit : {duration(10s), duration(0s)}) {
    managed both;
    both.form("left");
    auto other_task = [&]() -> task<void> {
      co_await when_any(remove_one(both.of_a, "left"), sleep_for(limit));
    };
    auto all = [&]() -> task<void> {
      co_await both.of_a.remove_all();
      CHECK(both.of_a.list().empty());
    };
    auto side_by_side = [&]() -> task<void> { co_await when_all(other_task(), all()); };
    both.a.run(side_by_side());
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
