// Accept and connect: who meets whom, what is absorbed and what passes.
#include "manyworlds/serve/accept.hpp"

#include <atomic>
#include <list>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "accept_fixture.hpp"
#include "manyworlds/serve/connect.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("serve");

TEST_CASE("who connects meets who accepts: neither was given names, ranks or sizes") {
  memory_store store;
  node front;
  node worker;
  std::stop_source enough;
  auto accepted = front.rt.start(
      accept(front.rt, store, {.service = "decode"}, echo, enough.get_token()));
  std::string name;
  auto body = [&](world& w) -> task<void> {
    CHECK(w.rank() == 1);
    CHECK(w.size() == 2);
    CHECK(co_await ask(w, 7) == 7);
    name = w.name().str();
  };
  worker.run(connect(worker.rt, store, {.service = "decode"}, body));
  CHECK(name.starts_with("decode/"));
  enough.request_stop();
  front.finish(accepted);
  CHECK(keys_in(front, store) == 0);
}

TEST_CASE("sixteen connectors at once are each met once, side by side") {
  memory_store store;
  node front;
  std::list<node> workers(16);
  std::atomic<int> met{0};
  std::atomic<int> together{0};
  event all_there;
  auto body = [&](world& w) -> task<void> {
    ++met;
    if (++together == 16) all_there.set();
    co_await all_there;
    const std::uint64_t word = 1;
    co_await w.send(std::span(&word, 1), to(1)).delivered();
  };
  std::stop_source enough;
  auto accepted = front.rt.start(
      accept(front.rt, store, {.service = "decode"}, body, enough.get_token()));
  std::vector<started<void>> connected;
  for (node& each : workers) {
    connected.push_back(each.rt.start(connect(each.rt, store, {.service = "decode"},
                                              [](world& w) { return until_left(w); })));
  }
  auto next = connected.begin();
  for (node& each : workers) each.finish(*next++);
  enough.request_stop();
  front.finish(accepted);
  CHECK(met == 16);
  CHECK(keys_in(front, store) == 0);
}

TEST_CASE(
    "one runtime may connect several times at once, and does not connect to itself") {
  memory_store store;
  node front;
  node worker;
  std::stop_source enough;
  auto accepted = front.rt.start(
      accept(front.rt, store, {.service = "decode"}, echo, enough.get_token()));
  std::set<std::string> names;
  event all_there;
  auto body = [&](world& w) -> task<void> {
    names.insert(w.name().str());
    if (names.size() == 3) all_there.set();
    co_await all_there;
    CHECK(co_await ask(w, 7) == 7);
  };
  std::vector<started<void>> connected;
  for (int i = 0; i < 3; ++i) {
    connected.push_back(
        worker.rt.start(connect(worker.rt, store, {.service = "decode"}, body)));
  }
  for (auto& each : connected) worker.finish(each);
  try {
    front.run(connect(front.rt, store, {.service = "decode"}, body));
    FAIL("a world with itself");
  } catch (const world_error& e) {
    CHECK(e.cause() == cause::invalid_argument);
  }
  enough.request_stop();
  front.finish(accepted);
}

TEST_CASE("law 11: a peer with another secret is refused, and disturbs no other") {
  memory_store store;
  runtime_options with_secret;
  with_secret.secret = "the right one, 16 bytes at least";
  node front(with_secret);
  node friend_of_ours(with_secret);
  node stranger;
  std::stop_source enough;
  auto accepted = front.rt.start(
      accept(front.rt, store, {.service = "decode"}, echo, enough.get_token()));
  auto never = [](world&) -> task<void> {
    FAIL_CHECK("met a stranger");
    co_return;
  };
  auto refused =
      stranger.rt.start(connect(stranger.rt, store, {.service = "decode"}, never));
  CHECK(front.log.gets("another secret"));
  auto body = [](world& w) -> task<void> { CHECK(co_await ask(w, 7) == 7); };
  friend_of_ours.run(connect(friend_of_ours.rt, store, {.service = "decode"}, body));
  stranger.rt.stop();
  stranger.finish(refused);
  enough.request_stop();
  front.finish(accepted);
}

TEST_CASE("several acceptors share who comes: each connector is taken by exactly one") {
  memory_store store;
  std::list<node> fronts(3);
  std::list<node> workers(12);
  std::mutex mutex;
  std::multiset<std::string> names;
  auto body = [&](world& w) -> task<void> {
    {
      const std::lock_guard lock(mutex);
      names.insert(w.name().str());
    }
    const std::uint64_t word = 1;
    co_await w.send(std::span(&word, 1), to(1)).delivered();
  };
  std::stop_source enough;
  std::vector<started<void>> accepted;
  for (node& each : fronts) {
    accepted.push_back(each.rt.start(accept(
        each.rt, store, {.service = "decode", .most = 2}, body, enough.get_token())));
  }
  std::vector<started<void>> connected;
  for (node& each : workers) {
    connected.push_back(each.rt.start(connect(each.rt, store, {.service = "decode"},
                                              [](world& w) { return until_left(w); })));
  }
  auto next = connected.begin();
  for (node& each : workers) each.finish(*next++);
  enough.request_stop();
  auto front = fronts.begin();
  for (auto& each : accepted) (front++)->finish(each);
  CHECK(names.size() == 12);
  CHECK(std::set<std::string>(names.begin(), names.end()).size() == 12);
}

TEST_CASE("beyond the limit connectors wait until a world has ended (law 9)") {
  memory_store store;
  node front;
  std::list<node> workers(4);
  int now = 0;
  int highest = 0;
  auto body = [&](world& w) -> task<void> {
    highest = std::max(highest, ++now);
    co_await sleep_for(20ms);
    --now;
    const std::uint64_t word = 1;
    co_await w.send(std::span(&word, 1), to(1)).delivered();
  };
  std::stop_source enough;
  auto accepted = front.rt.start(accept(front.rt, store, {.service = "decode", .most = 1},
                                        body, enough.get_token()));
  std::vector<started<void>> connected;
  for (node& each : workers) {
    connected.push_back(each.rt.start(connect(each.rt, store, {.service = "decode"},
                                              [](world& w) { return until_left(w); })));
  }
  auto next = connected.begin();
  for (node& each : workers) each.finish(*next++);
  enough.request_stop();
  front.finish(accepted);
  CHECK(highest == 1);
}

TEST_CASE("a body's failure of its own world ends that world only (law 2)") {
  memory_store store;
  node front;
  node good;
  node bad;
  std::stop_source enough;
  // The one that asks for it gets an operation that fails although the world is up.
  auto body = [](world& w) -> task<void> {
    std::uint64_t word = 0;
    co_await w.recv(std::span(&word, 1), from(1));
    if (word == 13) co_await w.recv(std::span(&word, 1), from(5));
    for (;;) {
      co_await w.send(std::span(&word, 1), to(1));
      co_await w.recv(std::span(&word, 1), from(1));
    }
  };
  auto accepted = front.rt.start(
      accept(front.rt, store, {.service = "decode"}, body, enough.get_token()));
  event go_on;
  auto asks_twice = [&](world& w) -> task<void> {
    CHECK(co_await ask(w, 1) == 1);
    co_await go_on;
    CHECK(co_await ask(w, 2) == 2);
  };
  auto well = good.rt.start(connect(good.rt, store, {.service = "decode"}, asks_twice));
  std::vector<cause> seen;
  auto is_broken = [&](world& w) -> task<void> {
    const auto got = co_await outcome(ask(w, seen.empty() ? 13 : 1));
    seen.push_back(got ? cause::none : got.error().cause);
    if (!got) throw world_error(got.error());
  };
  bad.run(connect(bad.rt, store, {.service = "decode"}, is_broken));
  CHECK(seen == std::vector{cause::broken_by_user, cause::none});
  auto open = [&]() -> task<void> {
    go_on.set();
    co_return;
  };
  good.run(open());
  good.finish(well);
  enough.request_stop();
  front.finish(accepted);
}

TEST_CASE(
    "a body of accept that throws ends its own world alone: its peer is told the text, "
    "it "
    "is logged and counted, and the other bodies go on") {
  memory_store store;
  node front;
  node first;
  node second;
  auto body = [](world& w) -> task<void> {
    for (;;) {
      std::uint64_t word = 0;
      co_await w.recv(std::span(&word, 1), from(1));
      if (word == 13) throw std::runtime_error("the body's own");
      if (word == 14) throw 14;
      co_await w.send(std::span(&word, 1), to(1));
    }
  };
  std::stop_source enough;
  auto accepted = front.rt.start(
      accept(front.rt, store, {.service = "decode"}, body, enough.get_token()));
  event is_up;
  event others_failed;
  auto waits = [&](world& w) -> task<void> {
    CHECK(co_await ask(w, 1) == 1);
    is_up.set();
    co_await others_failed;
    CHECK(co_await ask(w, 2) == 2);
  };
  std::uint64_t word = 0;
  failure seen;
  auto provokes = [&](world& w) -> task<void> {
    co_await w.send(std::span(&word, 1), to(0));
    seen = co_await w.broken();
  };
  auto waiting = first.rt.start(connect(first.rt, store, {.service = "decode"}, waits));
  auto ready = [&]() -> task<void> { co_await is_up; };
  first.run(ready());
  for (word = 13; word <= 14; ++word) {
    second.run(connect(second.rt, store, {.service = "decode"}, provokes));
    CHECK(seen.cause == cause::broken_by_user);
    CAPTURE(seen.text());
    CHECK(seen.detail.find(word == 13
                               ? "the body's own"
                               : "not derived from std::exception") != std::string::npos);
  }
  CHECK(front.log.count("the body ended by an exception: the body's own",
                        log_level::error) == 1);
  CHECK(front.rt.dump().find("bodies that ended by an exception: 2") !=
        std::string::npos);
  auto go_on = [&]() -> task<void> {
    others_failed.set();
    co_return;
  };
  first.run(go_on());
  first.finish(waiting);
  enough.request_stop();
  front.finish(accepted);
}

TEST_CASE("a body that has moved its world away and throws ends nothing else of accept") {
  memory_store store;
  node front;
  node peer;
  auto body = [](world& w) -> task<void> {
    std::uint64_t word = 0;
    co_await w.recv(std::span(&word, 1), from(1));
    if (word == 13) {
      const world own = std::move(w);
      throw std::runtime_error("the body's own");
    }
    co_await w.send(std::span(&word, 1), to(1));
  };
  std::stop_source enough;
  auto accepted = front.rt.start(
      accept(front.rt, store, {.service = "decode"}, body, enough.get_token()));
  auto provokes = [](world& w) -> task<void> {
    const std::uint64_t word = 13;
    co_await w.send(std::span(&word, 1), to(0));
    (void)co_await w.broken();
  };
  peer.run(connect(peer.rt, store, {.service = "decode"}, provokes));
  auto asks = [](world& w) -> task<void> { CHECK(co_await ask(w, 1) == 1); };
  peer.run(connect(peer.rt, store, {.service = "decode"}, asks));
  enough.request_stop();
  front.finish(accepted);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
