#include "manyworlds/store/store.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/coro/within.hpp"
#include "store/store_fixture.hpp"

using namespace manyworlds_tests;

TEST_SUITE_BEGIN("store");

TEST_CASE("what was set is what get gives, empty and binary values included") {
  for_each_store([](store& st) -> task<void> {
    const std::string binary("\0\xff/\n\0", 5);
    co_await st.set("plain", "value");
    co_await st.set("empty", "");
    co_await st.set(binary, binary);
    CHECK(co_await st.get("plain", 5s) == "value");
    CHECK(co_await st.get("empty", 5s) == "");
    CHECK(co_await st.get(binary, 5s) == binary);
    co_await st.set("plain", "again");
    CHECK(co_await st.get("plain", 5s) == "again");
  });
}

TEST_CASE("a value of the largest size comes back whole") {
  for_each_store([](store& st) -> task<void> {
    std::string large(store_limits().value_bytes, 'x');
    for (std::size_t i = 0; i < large.size(); i += 997) large[i] = static_cast<char>(i);
    co_await st.set("large", large);
    CHECK((co_await st.get("large", 10s) == large));
  });
}

TEST_CASE("try_get does not wait and tells an empty value from a missing key") {
  for_each_store([](store& st) -> task<void> {
    CHECK(co_await st.try_get("k") == std::nullopt);
    co_await st.set("k", "");
    CHECK(co_await st.try_get("k") == std::optional<std::string>(""));
    CHECK(co_await st.try_get("other") == std::nullopt);
  });
}

TEST_CASE("get waits until someone sets the key") {
  for_each_store([](store& st) -> task<void> {
    std::string got;
    co_await scope::run([&](scope& s) -> task<void> {
      const auto getting = [&]() -> task<void> { got = co_await st.get("late", 10s); };
      s.spawn(getting);
      co_await sleep_for(20ms);
      CHECK(got.empty());
      co_await st.set("late", "here");
    });
    CHECK(got == "here");
  });
}

TEST_CASE("wait ends when the last of its keys is set, by whatever sets it") {
  for_each_store([](store& st) -> task<void> {
    bool waited = false;
    co_await st.set("a", "1");
    co_await scope::run([&](scope& s) -> task<void> {
      const auto waiting = [&]() -> task<void> {
        co_await st.wait({"a", "b", "c", "b"}, 10s);
        waited = true;
      };
      s.spawn(waiting);
      co_await sleep_for(5ms);
      co_await st.add("b", 1);
      co_await sleep_for(5ms);
      CHECK(!waited);
      co_await st.compare_set("c", "", "1");
    });
    CHECK(waited);
    co_await st.wait({}, 1s);
  });
}

TEST_CASE("a wait that times out names the keys that are missing, and only those") {
  for_each_store([](store& st) -> task<void> {
    co_await st.set("there", "1");
    const store_failure f = co_await failure_of(st.wait({"gone", "there", "lost"}, 30ms));
    CHECK(f.kind == store_error_kind::timed_out);
    CHECK(f.keys == std::vector<std::string>{"gone", "lost"});
    CHECK(f.elapsed >= 30ms);
    CHECK(f.store == st.address());
    const std::string text = store_error(f).what();
    CHECK(text.find("wait of \"gone\", \"lost\" timed out after ") != std::string::npos);
    const store_failure g = co_await failure_of(st.get("gone", 0s));
    CHECK(g.kind == store_error_kind::timed_out);
    CHECK(g.operation == store_operation::get);
    // A connection that had timed out is in step again, or gone.
    CHECK(co_await st.get("there", 5s) == "1");
  });
}

TEST_CASE("add counts from nothing, down as well, and over the whole range") {
  for_each_store([](store& st) -> task<void> {
    CHECK(co_await st.add("n", 5) == 5);
    CHECK(co_await st.add("n", -7) == -2);
    CHECK(co_await st.get("n", 1s) == "-2");
    co_await st.set("n", "9223372036854775806");
    CHECK(co_await st.add("n", 1) == INT64_MAX);
    CHECK(co_await st.add("n", 0) == INT64_MAX);
  });
}

TEST_CASE("add to what is no number, or beyond 64 bits, fails and changes nothing") {
  for_each_store([](store& st) -> task<void> {
    co_await st.set("word", "seven");
    co_await st.set("full", std::to_string(INT64_MAX));
    for (std::string key : {"word", "full"}) {
      const store_failure f = co_await failure_of(st.add(key, 1));
      const bool said = f.kind == store_error_kind::refused ||
                        (f.kind == store_error_kind::unreachable && f.may_have_happened);
      CHECK(said);
    }
    CHECK(co_await st.get("word", 1s) == "seven");
    CHECK(co_await st.get("full", 1s) == std::to_string(INT64_MAX));
  });
}

TEST_CASE("compare_set follows PyTorch's table") {
  for_each_store([](store& st) -> task<void> {
    CHECK(co_await st.compare_set("k", "old", "new") == "old");
    CHECK(!co_await st.check({"k"}));
    CHECK(co_await st.compare_set("k", "", "first") == "first");
    CHECK(co_await st.compare_set("k", "", "second") == "first");
    CHECK(co_await st.compare_set("k", "other", "second") == "first");
    CHECK(co_await st.compare_set("k", "first", "second") == "second");
    CHECK(co_await st.get("k", 1s) == "second");
    CHECK(co_await st.compare_set("k", "second", "") == "");
    CHECK(co_await st.compare_set("k", "", "third") == "third");
  });
}

TEST_CASE("of eight clients that compare_set one key, one wins and all know who") {
  for_each_store([](store& st) -> task<void> {
    constexpr int clients = 8;
    std::vector<std::string> seen(clients);
    co_await scope::run([&](scope& s) -> task<void> {
      const auto claiming = [&](int i) -> task<void> {
        seen[static_cast<std::size_t>(i)] =
            co_await st.compare_set("leader", "", "client " + std::to_string(i));
      };
      for (int i = 0; i < clients; ++i) s.spawn(claiming, i);
      co_return;
    });
    int winners = 0;
    for (int i = 0; i < clients; ++i) {
      CHECK(seen[static_cast<std::size_t>(i)] == seen[0]);
      winners += seen[0] == "client " + std::to_string(i);
    }
    CHECK(winners == 1);
  });
}

TEST_CASE("erase, check and num_keys agree on what is there") {
  for_each_store([](store& st) -> task<void> {
    CHECK(co_await st.num_keys() == 0);
    co_await st.set("a", "1");
    co_await st.set("b", "2");
    CHECK(co_await st.num_keys() == 2);
    CHECK(co_await st.check({"a", "b"}));
    CHECK(!co_await st.check({"a", "c"}));
    CHECK(co_await st.check({}));
    CHECK(co_await st.erase("a"));
    CHECK(!co_await st.erase("a"));
    CHECK(co_await st.num_keys() == 1);
    const store_failure f = co_await failure_of(st.get("a", 10ms));
    CHECK(f.kind == store_error_kind::timed_out);
  });
}

TEST_CASE("one set releases two hundred waiters, beside which other operations go on") {
  for_each_store([](store& st) -> task<void> {
    constexpr int waiters = 200;
    int released = 0;
    co_await scope::run([&](scope& s) -> task<void> {
      const auto waiting = [&]() -> task<void> {
        CHECK(co_await st.get("go", 15s) == "now");
        ++released;
      };
      for (int i = 0; i < waiters; ++i) s.spawn(waiting);
      for (int i = 1; i <= 20; ++i) CHECK(co_await st.add("meanwhile", 1) == i);
      CHECK(released == 0);
      co_await st.set("go", "now");
    });
    CHECK(released == waiters);
  });
}

TEST_CASE("a hundred operations at once each get their own answer") {
  for_each_store([](store& st) -> task<void> {
    constexpr int operations = 100;
    int right = 0;
    co_await scope::run([&](scope& s) -> task<void> {
      const auto one = [&](int i) -> task<void> {
        const std::string key = "key " + std::to_string(i);
        co_await st.set(key, std::to_string(i));
        co_await st.add("sum", i);
        right += co_await st.get(key, 5s) == std::to_string(i);
      };
      for (int i = 0; i < operations; ++i) s.spawn(one, i);
      co_return;
    });
    CHECK(right == operations);
    CHECK(co_await st.add("sum", 0) == operations * (operations - 1) / 2);
  });
}

TEST_CASE("a wait that is given up leaves the store as good as before") {
  for_each_store([](store& st) -> task<void> {
    for (int i = 0; i < 20; ++i) {
      bool gave_up = false;
      try {
        co_await within(st.get("never", 10s), i % 2 ? 1ms : 0ms);
      } catch (const timed_out&) {
        gave_up = true;
      }
      CHECK(gave_up);
      CHECK(co_await st.add("count", 1) == i + 1);
    }
    co_await st.set("never", "after all");
    CHECK(co_await st.get("never", 5s) == "after all");
  });
}

TEST_CASE("a key set at the moment a wait gives up leaves every connection in step") {
  for_each_store([](store& st) -> task<void> {
    for (int i = 0; i < 300; ++i) {
      const std::string key = "race " + std::to_string(i);
      const auto waiting = [](store& st, std::string key, int i) -> task<void> {
        try {
          co_await st.wait(key, std::chrono::microseconds(i));
        } catch (const store_error& e) {
          CHECK(e.kind() == store_error_kind::timed_out);
        }
      };
      co_await when_all(waiting(st, key, i), st.set(key, "v"));
      CHECK(co_await st.get(key, 5s) == "v");
    }
  });
}

TEST_CASE("keys and values beyond the limits are refused before anything is sent") {
  for_each_store([](store& st) -> task<void> {
    const store_limits limits;
    const store_failure key =
        co_await failure_of(st.set(std::string(limits.key_bytes + 1, 'k'), "v"));
    CHECK(key.kind == store_error_kind::too_large);
    const store_failure value =
        co_await failure_of(st.set("k", std::string(limits.value_bytes + 1, 'v')));
    CHECK(value.kind == store_error_kind::too_large);
    CHECK(value.text().find("8388609 bytes, at most 8388608") != std::string::npos);
    const store_failure many = co_await failure_of(
        st.check(std::vector<std::string>(limits.keys_per_request + 1, "k")));
    CHECK(many.kind == store_error_kind::too_large);
    co_await st.set(std::string(limits.key_bytes - 1, 'k'), "v");
    CHECK(co_await st.num_keys() == 1);
  });
}

TEST_CASE("tasks of two threads meet in one store, each resumed on its own") {
  for_each_store([](store& st) -> task<void> {
    const std::thread::id here = std::this_thread::get_id();
    std::thread other([&st] {
      const std::thread::id there = std::this_thread::get_id();
      const auto ponging = [](store& st, std::thread::id there) -> task<void> {
        for (int i = 0; i < 50; ++i) {
          CHECK(co_await st.get("ping " + std::to_string(i), 10s) == "ping");
          CHECK(std::this_thread::get_id() == there);
          co_await st.set("pong " + std::to_string(i), "pong");
        }
      };
      sync_wait(ponging(st, there));
    });
    for (int i = 0; i < 50; ++i) {
      co_await st.set("ping " + std::to_string(i), "ping");
      CHECK(co_await st.get("pong " + std::to_string(i), 10s) == "pong");
      CHECK(std::this_thread::get_id() == here);
    }
    other.join();
  });
}
