#include "store/key_value_table.hpp"

#include <doctest/doctest.h>

#include <cstdint>

using namespace manyworlds;

TEST_SUITE_BEGIN("key_value_table");

namespace {

struct counting_waiter final : key_value_table::waiter {
  counting_waiter()
      : waiter([](waiter& w) noexcept { ++static_cast<counting_waiter&>(w).releases; }) {}
  int releases = 0;
};

}  // namespace

TEST_CASE("a key that is named twice is waited for once") {
  key_value_table table;
  counting_waiter w;
  CHECK(!table.await(w, {"a", "b", "a"}));
  table.set("a", "1");
  CHECK(w.releases == 0);
  table.append("b", "1");
  CHECK(w.releases == 1);
  CHECK(!w.is_waiting());
  CHECK(!table.await(w, {"queue", "queue"}));
  table.push("queue", "one");
  CHECK(w.releases == 2);
}

TEST_CASE("a key that is set and erased while others are missing has been waited for") {
  key_value_table table;
  counting_waiter w;
  CHECK(!table.await(w, {"a", "b"}));
  table.set("a", "1");
  CHECK(table.erase("a"));
  CHECK(table.compare_set("b", "", "1") == "1");
  CHECK(w.releases == 1);
}

TEST_CASE("a second set does not release again, nor one that stores nothing") {
  key_value_table table;
  counting_waiter w;
  CHECK(!table.await(w, {"a"}));
  CHECK(table.compare_set("a", "old", "new") == "old");
  CHECK(w.releases == 0);
  table.set("a", "1");
  table.set("a", "2");
  CHECK(w.releases == 1);
}

TEST_CASE("a waiter that is forgotten is not released, its neighbours are") {
  key_value_table table;
  counting_waiter first;
  counting_waiter second;
  CHECK(!table.await(first, {"a", "b"}));
  CHECK(!table.await(second, {"a"}));
  table.forget(first);
  table.forget(first);
  table.set("a", "1");
  table.set("b", "1");
  CHECK(first.releases == 0);
  CHECK(second.releases == 1);
}

TEST_CASE(
    "a queue is first in first out, counts as a set key, and a push wakes one that "
    "takes") {
  key_value_table table;
  counting_waiter first;
  counting_waiter looker;
  counting_waiter second;
  CHECK(!table.await(first, {"q"}, true));
  CHECK(!table.await(looker, {"q"}));
  CHECK(!table.await(second, {"q"}, true));
  table.push("q", "1");
  CHECK(first.releases == 1);
  CHECK(looker.releases == 1);
  CHECK(second.releases == 0);
  table.push("q", "2");
  CHECK(second.releases == 1);
  CHECK(table.contains_all({"q"}));
  CHECK(table.key_count() == 0);
  CHECK(table.queue_size("q") == 2);
  CHECK(table.pop("q") == "1");
  CHECK(table.pop("q") == "2");
  CHECK(!table.pop("q"));
  CHECK(!table.contains("q"));
}

TEST_CASE("a barrier releases when all have arrived, and lets later ones pass") {
  key_value_table table;
  counting_waiter w[3];
  CHECK(table.arrive(w[0], "b", 3) == false);
  CHECK(table.arrive(w[1], "b", 3) == false);
  CHECK(w[0].releases == 0);
  CHECK(table.arrive(w[2], "b", 3) == true);
  CHECK(w[0].releases == 1);
  CHECK(w[1].releases == 1);
  CHECK(w[2].releases == 0);
  CHECK(table.arrive(w[2], "b", 3) == true);
  table.set("word", "x");
  CHECK(!table.arrive(w[2], "word", 3));
}

TEST_CASE("who gives up at a barrier has arrived all the same") {
  key_value_table table;
  counting_waiter first;
  counting_waiter second;
  CHECK(table.arrive(first, "b", 2) == false);
  table.forget(first);
  CHECK(table.arrive(second, "b", 2) == true);
  CHECK(first.releases == 0);
}

TEST_CASE("numbers keep the whole range and nothing else counts as one") {
  key_value_table table;
  CHECK(table.add("n", INT64_MIN) == INT64_MIN);
  CHECK(!table.add("n", -1));
  CHECK(*table.find("n") == "-9223372036854775808");
  for (const char* text : {"", " 1", "1 ", "0x1", "1.5", "9223372036854775808"}) {
    table.set("t", text);
    CHECK(!table.add("t", 1));
    CHECK(*table.find("t") == text);
  }
}

TEST_CASE("the bytes are back to nothing when everything has gone") {
  key_value_table table;
  table.set("a", std::string(1000, 'x'));
  CHECK(table.bytes() > 1000);
  table.set("a", "y");
  CHECK(table.bytes() < 1000);
  table.append("a", "yy");
  table.push("q", "value");
  CHECK(table.erase("a"));
  CHECK(table.pop("q"));
  CHECK(table.bytes() == 0);
}
