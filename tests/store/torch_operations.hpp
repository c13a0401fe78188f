// What torch_peer.py does with PyTorch's client, done with ours: to a server that says
// what was recorded, and to PyTorch's own.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/store/store_error.hpp"
#include "manyworlds/store/tcp_store.hpp"

namespace manyworlds_tests {

/// One operation with one client, and another where two are needed. Errors:
/// std::runtime_error if something came out otherwise than it should.
using torch_operation = manyworlds::task<void> (*)(manyworlds::tcp_store& st,
                                                   manyworlds::tcp_store& other);

// Results that are awaited have names of their own, as g++ 12 has defects with
// temporaries there.
namespace torch_sides {

using namespace manyworlds;
using namespace std::chrono_literals;
using strings = std::vector<std::string>;

constexpr duration long_enough = 20s;
constexpr duration soon_over = 100ms;

inline void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("not so: ") + what);
}

inline task<bool> ends_at_its_limit(task<void> operation) {
  try {
    co_await std::move(operation);
  } catch (const store_error& e) {
    if (e.kind() != store_error_kind::timed_out) throw;
    co_return true;
  }
  co_return false;
}

/// Begins one, and does the other while it waits.
inline task<void> beside(task<void> waiting, task<void> meanwhile) {
  const auto both = [&](scope& s) -> task<void> {
    s.spawn(std::move(waiting));
    co_await sleep_for(soon_over);
    co_await std::move(meanwhile);
  };
  co_await scope::run(both);
}

inline task<void> set(tcp_store& st, tcp_store&) {
  const std::string bytes("\0\xff\r\n\x7f", 5);
  co_await st.set("k", "v");
  co_await st.set("empty", "");
  co_await st.set("bytes", bytes);
  co_await st.set("schlüssel", "größe");
  co_await st.set("k", "w");
  const std::int64_t count = co_await st.num_keys();
  expect(count == 4, "four keys are set");
}

inline task<void> get(tcp_store& st, tcp_store&) {
  co_await st.set("k", "value");
  co_await st.set("empty", "");
  const std::string value = co_await st.get("k", long_enough);
  const std::string empty = co_await st.get("empty", long_enough);
  expect(value == "value" && empty.empty(), "values are what was set");
}

inline task<void> get_value(tcp_store& st) {
  const std::string value = co_await st.get("k", long_enough);
  expect(value == "value", "the value is the other's");
}
inline task<void> get_blocked(tcp_store& st, tcp_store& other) {
  co_await beside(get_value(st), other.set("k", "value"));
}

inline task<void> add(tcp_store& st, tcp_store&) {
  std::vector<std::int64_t> sums;
  for (const std::int64_t by : {5L, -7L, 0L, 1L << 40}) {
    const std::int64_t sum = co_await st.add("n", by);
    sums.push_back(sum);
  }
  expect(sums == std::vector<std::int64_t>{5, -2, -2, (1L << 40) - 2}, "sums add up");
  const std::string text = co_await st.get("n", long_enough);
  expect(text == "1099511627774", "the sum is kept as decimal text");
}

inline task<void> check(tcp_store& st, tcp_store&) {
  const strings one{"k"};
  const strings not_all{"k", "none"};
  const strings twice{"k", "k"};
  co_await st.set("k", "v");
  const bool is_set = co_await st.check(one);
  const bool are_set = co_await st.check(not_all);
  const bool is_set_twice = co_await st.check(twice);
  expect(is_set && is_set_twice, "the key is set");
  expect(!are_set, "another is not");
}

inline task<void> wait(tcp_store& st, tcp_store&) {
  const strings one{"a"};
  const strings both{"a", "b"};
  co_await st.set("a", "1");
  co_await st.set("b", "2");
  co_await st.wait(one, long_enough);
  co_await st.wait(both, long_enough);
}

inline task<void> set_both(tcp_store& st) {
  co_await st.set("a", "1");
  const std::int64_t sum = co_await st.add("b", 1);
  expect(sum == 1, "a sum begins at 0");
}
inline task<void> wait_blocked(tcp_store& st, tcp_store& other) {
  const strings both{"a", "b"};
  co_await beside(st.wait(both, long_enough), set_both(other));
}

inline task<void> wait_timeout(tcp_store& st, tcp_store&) {
  const strings never{"never"};
  const bool is_over = co_await ends_at_its_limit(st.wait(never, soon_over));
  const std::int64_t sum = co_await st.add("n", 1);
  expect(is_over, "a wait ends at its limit");
  expect(sum == 1, "the next reply belongs to the next question");
}

inline task<void> compare_set(tcp_store& st, tcp_store&) {
  strings found;
  const std::vector<strings> words{
      {"x", "y"}, {"", "1"}, {"2", "3"}, {"1", "4"}, {"", "5"}};
  for (const strings& each : words) {
    const std::string now = co_await st.compare_set("k", each[0], each[1]);
    found.push_back(now);
  }
  expect(found == strings{"x", "1", "1", "4", "4"}, "compare_set has its truth table");
}

inline task<void> delete_key(tcp_store& st, tcp_store&) {
  co_await st.set("k", "v");
  const bool was_set = co_await st.erase("k");
  const bool is_still_set = co_await st.erase("k");
  expect(was_set && !is_still_set, "a key is erased once");
}

inline task<void> num_keys(tcp_store& st, tcp_store&) {
  const std::int64_t before = co_await st.num_keys();
  co_await st.set("k", "v");
  const std::int64_t after = co_await st.num_keys();
  expect(before == 0 && after == 1, "keys are counted");
}

inline task<void> append(tcp_store& st, tcp_store&) {
  co_await st.append("k", "one");
  co_await st.append("k", ", two");
  const std::string value = co_await st.get("k", long_enough);
  expect(value == "one, two", "a value grows");
}

inline task<void> multi_get(tcp_store& st, tcp_store&) {
  const strings keys{"a", "b", "a"};
  co_await st.set("a", "1");
  co_await st.set("b", "");
  const strings values = co_await st.multi_get(keys, long_enough);
  expect(values == strings{"1", "", "1"}, "values are in the order of their keys");
}

inline task<void> multi_set(tcp_store& st, tcp_store&) {
  const std::vector<store_entry> entries{{"a", "1"}, {"b", ""}};
  co_await st.multi_set(entries);
  const std::string value = co_await st.get("a", long_enough);
  expect(value == "1", "the value is what was set");
}

inline task<void> queue_push(tcp_store& st, tcp_store&) {
  co_await st.push("q", "first");
  co_await st.push("q", "");
  const std::int64_t size = co_await st.queue_size("q");
  const std::int64_t none = co_await st.queue_size("none");
  expect(size == 2 && none == 0, "values of a queue are counted");
}

inline task<void> queue_pop(tcp_store& st, tcp_store&) {
  co_await st.push("q", "first");
  co_await st.push("q", "second");
  const std::string first = co_await st.pop("q", long_enough);
  const std::optional<std::string> second = co_await st.try_pop("q");
  expect(first == "first" && second == "second", "values come in their order");
}

inline task<void> pop_value(tcp_store& st) {
  const std::string value = co_await st.pop("q", long_enough);
  expect(value == "value", "the value is the other's");
}
inline task<void> queue_pop_blocked(tcp_store& st, tcp_store& other) {
  co_await beside(pop_value(st), other.push("q", "value"));
}

inline task<void> list_keys(tcp_store& st, tcp_store&) {
  co_await st.set("only", "1");
  const strings keys = co_await st.keys();
  expect(keys == strings{"only"}, "there is one key");
}

inline task<void> barrier(tcp_store& st, tcp_store& other) {
  co_await beside(st.barrier("all", 2, long_enough),
                  other.barrier("all", 2, long_enough));
}

inline task<void> barrier_timeout(tcp_store& st, tcp_store&) {
  const bool is_over = co_await ends_at_its_limit(st.barrier("all", 2, soon_over));
  const std::int64_t sum = co_await st.add("n", 1);
  expect(is_over, "a barrier ends at its limit");
  expect(sum == 1, "the next reply belongs to the next question");
}

}  // namespace torch_sides

/// By the names that torch_peer.py gives them.
inline const std::map<std::string, torch_operation> torch_operations{
    {"add", torch_sides::add},
    {"append", torch_sides::append},
    {"barrier", torch_sides::barrier},
    {"barrier_timeout", torch_sides::barrier_timeout},
    {"check", torch_sides::check},
    {"compare_set", torch_sides::compare_set},
    {"delete_key", torch_sides::delete_key},
    {"get", torch_sides::get},
    {"get_blocked", torch_sides::get_blocked},
    {"list_keys", torch_sides::list_keys},
    {"multi_get", torch_sides::multi_get},
    {"multi_set", torch_sides::multi_set},
    {"num_keys", torch_sides::num_keys},
    {"queue_pop", torch_sides::queue_pop},
    {"queue_pop_blocked", torch_sides::queue_pop_blocked},
    {"queue_push", torch_sides::queue_push},
    {"set", torch_sides::set},
    {"wait", torch_sides::wait},
    {"wait_blocked", torch_sides::wait_blocked},
    {"wait_timeout", torch_sides::wait_timeout},
};

}  // namespace manyworlds_tests
