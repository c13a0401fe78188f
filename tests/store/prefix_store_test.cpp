#include "manyworlds/store/prefix_store.hpp"

#include <doctest/doctest.h>

#include "store/store_fixture.hpp"

using namespace manyworlds_tests;

TEST_SUITE_BEGIN("prefix_store");

TEST_CASE("keys stand under the prefix, joined and nested as PyTorch joins them") {
  for_each_store([](store& st) -> task<void> {
    prefix_store outer("default_pg", st);
    prefix_store inner("0", outer);
    co_await inner.set("rank", "3");
    CHECK(co_await st.get("default_pg/0/rank", 1s) == "3");
    CHECK(co_await outer.check({"0/rank"}));
    CHECK(!co_await inner.check({"default_pg/0/rank"}));
    CHECK(co_await inner.erase("rank"));
    CHECK(co_await st.num_keys() == 0);
  });
}

TEST_CASE("two prefixes do not see each other's keys") {
  for_each_store([](store& st) -> task<void> {
    prefix_store left("left", st);
    prefix_store right("right", st);
    CHECK(co_await left.compare_set("k", "", "l") == "l");
    CHECK(co_await right.compare_set("k", "", "r") == "r");
    CHECK(co_await left.add("n", 1) == 1);
    CHECK(co_await right.add("n", 1) == 1);
  });
}

TEST_CASE("an error names the key as the store below has it") {
  for_each_store([](store& st) -> task<void> {
    prefix_store view("job", st);
    const store_failure f = co_await failure_of(view.get("k", 10ms));
    CHECK(f.keys == std::vector<std::string>{"job/k"});
    CHECK(f.store == st.address());
  });
}
