// S23: every kind of store passes one table, of the operations beyond those that worlds
// need.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/store/prefix_store.hpp"
#include "store/store_fixture.hpp"

using namespace manyworlds_tests;

namespace {

std::vector<std::string> sorted(std::vector<std::string> list) {
  std::sort(list.begin(), list.end());
  return list;
}

using list = std::vector<std::string>;

}  // namespace

TEST_SUITE_BEGIN("store");

TEST_CASE(
    "S6: append adds to the end of a value, and wakes those that wait for the key") {
  for_each_whole_store([](store& st) -> task<void> {
    co_await st.append("log", "one");
    co_await st.append("log", "");
    co_await st.append("log", std::string("\0two", 4));
    CHECK((co_await st.get("log", 5s) == std::string("one\0two", 7)));
    const auto later = [](store& st) -> task<void> {
      co_await sleep_for(10ms);
      co_await st.append("awaited", "x");
    };
    co_await when_all(st.wait("awaited", 10s), later(st));
  });
}

TEST_CASE("multi_get waits for all keys and keeps their order, repeated ones included") {
  for_each_whole_store([](store& st) -> task<void> {
    co_await st.multi_set({});
    std::vector<store_entry> entries;
    entries.push_back({"a", "1"});
    entries.push_back({"b", ""});
    co_await st.multi_set(std::move(entries));
    const auto later = [](store& st) -> task<void> {
      co_await sleep_for(10ms);
      co_await st.set("c", "3");
    };
    list got;
    const auto getting = [](store& st, list& got) -> task<void> {
      store_keys names("c", "a", "b", "a");
      got = co_await st.multi_get(std::move(names), 10s);
    };
    co_await when_all(getting(st, got), later(st));
    CHECK(got == list{"3", "1", "", "1"});
    CHECK((co_await st.multi_get(store_keys(), 5s)).empty());
  });
}

TEST_CASE("a multi_get that ends at its limit names the keys that are missing") {
  for_each_whole_store([](store& st) -> task<void> {
    co_await st.set("there", "1");
    store_keys names("there", "gone", "lost");
    const store_failure f = co_await failure_of(st.multi_get(std::move(names), 20ms));
    CHECK(f.kind == store_error_kind::timed_out);
    CHECK(f.operation == store_operation::multi_get);
    CHECK(sorted(f.keys) == list{"gone", "lost"});
  });
}

TEST_CASE("S12: a queue gives its values in their order, each to one taker") {
  for_each_whole_store([](store& st) -> task<void> {
    CHECK((co_await st.try_pop("q") == std::nullopt));
    CHECK(co_await st.queue_size("q") == 0);
    co_await st.push("q", "1");
    co_await st.push("q", "");
    co_await st.push("q", "3");
    CHECK(co_await st.queue_size("q") == 3);
    CHECK(co_await st.check("q"));
    CHECK(co_await st.num_keys() == 0);
    CHECK(co_await st.pop("q", 5s) == "1");
    CHECK((co_await st.try_pop("q") == std::optional<std::string>("")));
    CHECK(co_await st.pop("q", 5s) == "3");
    CHECK(!co_await st.check("q"));
    const store_failure f = co_await failure_of(st.pop("q", 10ms));
    CHECK(f.kind == store_error_kind::timed_out);
  });
}

TEST_CASE("S12: of several that wait for a queue each gets one value, and none twice") {
  for_each_whole_store([](store& st) -> task<void> {
    list got;
    const auto taking = [](store& st, list& got) -> task<void> {
      got.push_back(co_await st.pop("q", 10s));
    };
    co_await scope::run([&](scope& s) -> task<void> {
      for (int i = 0; i < 4; ++i) s.spawn(taking(st, got));
      co_await sleep_for(20ms);
      for (int i = 0; i < 4; ++i) co_await st.push("q", std::to_string(i));
    });
    CHECK(sorted(got) == list{"0", "1", "2", "3"});
    CHECK(co_await st.queue_size("q") == 0);
  });
}

TEST_CASE("a wait for a queue takes nothing from it, nor a wake-up from those that do") {
  auto body = [](store& st) -> task<void> {
    std::string got;
    const auto taking = [](store& st, std::string& got) -> task<void> {
      got = co_await st.pop("q", 10s);
    };
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(st.wait("q", 10s));
      s.spawn(taking(st, got));
      co_await sleep_for(20ms);
      co_await st.push("q", "one");
    });
    CHECK(got == "one");
  };
  // The protocol of TCPStore does not tell the two apart.
  with_store(store_kind::memory, body);
}

TEST_CASE(
    "S13: keys lists what is set, and a prefix store its own by their short names") {
  for_each_whole_store([](store& st) -> task<void> {
    prefix_store outer("job", st);
    prefix_store inner("7", outer);
    co_await st.set("plain", "1");
    co_await st.set("jobs", "no key of the prefix");
    co_await outer.set("a", "1");
    co_await inner.set("b", "1");
    co_await st.push("queue", "is no key");
    const list all = sorted(co_await st.keys());
    CHECK(all == list{"job/7/b", "job/a", "jobs", "plain"});
    const list outers = sorted(co_await outer.keys());
    CHECK(outers == list{"7/b", "a"});
    const list inners = sorted(co_await inner.keys());
    CHECK(inners == list{"b"});
    co_await inner.erase("b");
    CHECK((co_await inner.keys()).empty());
  });
}

TEST_CASE("S11: a barrier opens when all have come, late ones pass, and its key counts") {
  for_each_whole_store([](store& st) -> task<void> {
    int through = 0;
    const auto coming = [](store& st, int& through) -> task<void> {
      co_await st.barrier("b", 3, 10s);
      ++through;
    };
    co_await scope::run([&](scope& s) -> task<void> {
      s.spawn(coming(st, through));
      s.spawn(coming(st, through));
      co_await sleep_for(30ms);
      CHECK(through == 0);
      co_await coming(st, through);
    });
    CHECK(through == 3);
    co_await coming(st, through);
    CHECK(co_await st.get("b", 5s) == "4");
  });
}

TEST_CASE("S11: who gives up at a barrier has arrived all the same") {
  for_each_whole_store([](store& st) -> task<void> {
    const store_failure f = co_await failure_of(st.barrier("b", 2, 20ms));
    CHECK(f.kind == store_error_kind::timed_out);
    CHECK(f.reason == "not all 2 members have arrived");
    co_await st.barrier("b", 2, 5s);
    co_await st.set("text", "no number");
    const store_failure bad = co_await failure_of(st.barrier("text", 2, 300ms));
    // Over tcp the server can only end the connection.
    CHECK((bad.kind == store_error_kind::refused || bad.may_have_happened));
  });
}

TEST_SUITE_END();
