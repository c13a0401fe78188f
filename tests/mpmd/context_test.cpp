// Contexts of jobs: what all stores of them promise. The numbers are those of the
// catalogue of role graphs (B58 and so on).
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "manyworlds/detail/seeded_random.hpp"
#include "mpmd/support/context_fixture.hpp"
#include "support/eventually.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("context");

TEST_CASE("a context that was never written has term 0 and no values") {
  for_each_context([](const connect_context& connect) {
    const auto kept = connect();
    CHECK(context_result(kept->term()) == 0);
    CHECK(context_result(kept->load()).empty());
    CHECK_FALSE(kept->where().empty());
  });
}

TEST_CASE("graph B58: what one master wrote the next one reads, to the byte") {
  for_each_context([](const connect_context& connect) {
    context_values expected;
    {
      const auto first = connect();
      const std::uint64_t term = take_next_term(*first);
      CHECK(term == 1);
      std::vector<context_write> all;
      all.push_back({"restarts/decode.1", "2"});
      all.push_back({"failures/decode.1", "3"});
      all.push_back({"fenced/node 7", ""});
      all.push_back({"placed/decode.0", "node 0, gpu 1"});
      all.push_back({std::string("any\0\xff/bytes", 11), std::string("\0\1\xfe\0", 4)});
      all.push_back({"large", std::string(context_longest_value, '\x81')});
      for (const context_write& each : all) expected.emplace(each.key, *each.value);
      context_result(first->write(term, all));
      context_result(first->write(term, one_change("restarts/decode.1", "4")));
      expected["restarts/decode.1"] = "4";
      std::vector<context_write> erased;
      erased.push_back({"fenced/node 7", std::nullopt});
      erased.push_back({"was never set", std::nullopt});
      context_result(first->write(term, erased));
      expected.erase("fenced/node 7");
      CHECK(context_result(first->load()) == expected);
    }
    const auto next = connect();
    CHECK(context_result(next->term()) == 1);
    CHECK(context_result(next->load()) == expected);
    CHECK(take_next_term(*next) == 2);
    CHECK(context_result(next->load()) == expected);
    context_result(next->write(2, {}));
    CHECK(context_result(next->load()) == expected);
  });
}

TEST_CASE("of two changes of one key in a write the last holds") {
  for_each_context([](const connect_context& connect) {
    const auto kept = connect();
    const std::uint64_t term = take_next_term(*kept);
    std::vector<context_write> twice;
    twice.push_back({"a", "1"});
    twice.push_back({"b", "1"});
    twice.push_back({"a", "2"});
    twice.push_back({"b", std::nullopt});
    context_result(kept->write(term, twice));
    CHECK(context_result(connect()->load()) == context_values{{"a", "2"}});
  });
}

TEST_CASE("graph B60: the writes of a deposed master are refused") {
  for_each_context([](const connect_context& connect) {
    const auto old = connect();
    const std::uint64_t first = take_next_term(*old);
    context_result(old->write(first, one_change("a", "old")));
    const auto next = connect();
    const std::uint64_t second = take_next_term(*next);
    CHECK(second > first);
    const told_trouble refused =
        context_trouble_of(old->write(first, one_change("a", "late")));
    CHECK(refused == context_trouble::deposed);
    CHECK(refused.text.find("another master has taken term 2") != std::string::npos);
    // Nor can it lead again by the term that it knows.
    CHECK(context_trouble_of(old->take_term(first)) == context_trouble::deposed);
    CHECK(context_result(old->load()) == context_values{{"a", "old"}});
    context_result(next->write(second, one_change("a", "new")));
    CHECK(context_trouble_of(old->write(first, {})) == context_trouble::deposed);
    CHECK(context_result(old->load()) == context_values{{"a", "new"}});
    CHECK(context_result(old->term()) == second);
  });
}

TEST_CASE("graph B60: after a term is taken, no write under way of the older is seen") {
  for_each_kept_context([](const connect_context& connect) {
    for (int round = 0; round < 5; ++round) {
      std::atomic<int> acknowledged = 0;
      std::atomic<bool> has_ended = false;
      std::atomic<bool> must_end = false;
      told_trouble end;
      std::thread old([&] {
        const auto kept = connect();
        const std::uint64_t term = take_next_term(*kept);
        for (int i = 1; !end.kind && !must_end; ++i) {
          end = context_trouble_of(kept->write(term, one_change("n", std::to_string(i))));
          if (!end.kind) acknowledged = i;
          // SQLite's locks are not fair: without a pause the next one may wait for 5 s.
          std::this_thread::sleep_for(2ms);
        }
        has_ended = true;
      });
      // Also where the other master throws.
      const struct ending {
        std::atomic<bool>& must_end;
        std::thread& old;
        ~ending() {
          must_end = true;
          if (old.joinable()) old.join();
        }
      } at_last{must_end, old};
      CHECK(eventually([&] { return acknowledged >= 1 + round; }));
      const auto next = connect();
      take_next_term(*next);
      const context_values seen = context_result(next->load());
      CHECK(eventually([&] { return has_ended.load(); }, 5s));
      must_end = true;
      old.join();
      CHECK(end == context_trouble::deposed);
      CHECK(context_result(next->load()) == seen);
      CHECK(std::stoi(seen.at("n")) >= acknowledged);
    }
  });
}

TEST_CASE("masters that lead by turns each go on from what the other wrote") {
  for_each_context([](const connect_context& connect) {
    const auto first = connect();
    const auto second = connect();
    context_values expected;
    for (int turn = 0; turn < 6; ++turn) {
      context_store& leader = turn % 2 == 0 ? *first : *second;
      const std::uint64_t term = take_next_term(leader);
      const std::string number = std::to_string(turn);
      set_context_value(leader, term, "turn " + number, number);
      set_context_value(leader, term, "last", number);
      expected["turn " + number] = expected["last"] = number;
      CHECK(context_result(leader.load()) == expected);
    }
    CHECK(context_result(first->load()) == expected);
  });
}

TEST_CASE("of masters that take one term at once, one has it") {
  for_each_context([](const connect_context& connect) {
    const auto first = connect();
    const auto second = connect();
    const std::uint64_t seen = context_result(first->term());
    CHECK(context_result(second->term()) == seen);
    CHECK(context_result(first->take_term(seen)) == seen + 1);
    CHECK(context_trouble_of(second->take_term(seen)) == context_trouble::deposed);
    CHECK(context_result(second->term()) == seen + 1);
  });
  for_each_kept_context([](const connect_context& connect) {
    constexpr std::uint64_t terms = 20;
    std::atomic<int> taken = 0;
    std::atomic<int> other_troubles = 0;
    std::vector<std::thread> masters;
    for (int i = 0; i < 3; ++i) {
      masters.emplace_back([&] {
        const auto kept = connect();
        for (std::uint64_t seen = 0; seen < terms; ++seen) {
          const told_trouble told = context_trouble_of(kept->take_term(seen));
          taken += !told.kind;
          other_troubles += told.kind && !(told == context_trouble::deposed);
          // The next term is for all of them once this one is taken.
        }
      });
    }
    for (std::thread& each : masters) each.join();
    CHECK(taken == terms);
    CHECK(other_troubles == 0);
  });
}

TEST_CASE("a term that was never taken writes nothing: the context is an older one") {
  for_each_context([](const connect_context& connect) {
    const auto kept = connect();
    const std::uint64_t term = take_next_term(*kept);
    CHECK(context_trouble_of(kept->write(term + 1, one_change("a", "1"))) ==
          context_trouble::damaged);
    CHECK(context_trouble_of(kept->take_term(term + 1)) == context_trouble::damaged);
    CHECK(context_result(kept->load()).empty());
  });
}

TEST_CASE("what exceeds the limits of one write is refused, and nothing is written") {
  for_each_context([](const connect_context& connect) {
    const auto kept = connect();
    const std::uint64_t term = take_next_term(*kept);
    const auto refusal = [&](std::vector<context_write> changes) {
      return context_trouble_of(kept->write(term, std::move(changes)));
    };
    CHECK(refusal(one_change("a", std::string(context_longest_value + 1, 'x'))) ==
          context_trouble::too_large);
    CHECK(refusal(one_change(std::string(context_longest_key + 1, 'k'), "")) ==
          context_trouble::too_large);
    CHECK(refusal(one_change("", "a key has a name")) == context_trouble::too_large);
    std::vector<context_write> all;
    for (std::size_t i = 0; i <= context_most_changes; ++i)
      all.push_back({std::to_string(i), "v"});
    CHECK(refusal(all) == context_trouble::too_large);
    std::vector<context_write> heavy;
    for (int i = 0; i < 9; ++i)
      heavy.push_back({std::to_string(i), std::string(context_longest_value, 'x')});
    CHECK(refusal(heavy) == context_trouble::too_large);
    CHECK(context_result(kept->load()).empty());
    // What just fits is taken.
    all.pop_back();
    context_result(kept->write(term, all));
    heavy.resize(7);
    context_result(kept->write(term, heavy));
    CHECK(context_result(connect()->load()).size() == context_most_changes);
  });
}

TEST_CASE("graph B61: ten masters in turn, each reads what all before it wrote") {
  for_each_context([](const connect_context& connect) {
    seeded_random random(61);
    context_values expected;
    for (std::uint64_t master = 1; master <= 10; ++master) {
      const auto kept = connect();
      REQUIRE(take_next_term(*kept) == master);
      CHECK(context_result(kept->load()) == expected);
      for (int i = 0; i < 10; ++i) {
        const std::string key = "k" + std::to_string(random.below(20));
        std::vector<context_write> changes;
        if (random.one_in(4)) {
          changes.push_back({key, std::nullopt});
          expected.erase(key);
        } else {
          changes.push_back({key, std::to_string(random.next())});
          expected[key] = *changes.front().value;
        }
        context_result(kept->write(master, changes));
      }
    }
    CHECK(context_result(connect()->load()) == expected);
  });
}

TEST_CASE(
    "a memory context lets its caller die before or after a change, and not answer") {
  shared_context shared;
  shared.patience = 1ms;
  memory_context kept(shared);
  const std::uint64_t term = take_next_term(kept);
  std::uint64_t fatal = 2;
  change_moment when = change_moment::before_effect;
  change_fate fate = change_fate::never_answers;
  shared.decide = [&](change_moment moment, std::uint64_t number) {
    return number == fatal && moment == when ? fate : change_fate::goes_on;
  };
  const auto write_within = [&](duration limit) {
    sync_wait(within(kept.write(term, one_change("n", std::to_string(fatal))), limit));
  };
  CHECK_THROWS_AS(write_within(20ms), timed_out);
  CHECK(shared.values.empty());
  fatal = 3;
  when = change_moment::after_effect;
  CHECK_THROWS_AS(write_within(20ms), timed_out);
  CHECK(shared.values == context_values{{"n", "3"}});
  fatal = 4;
  fate = change_fate::unreachable;
  CHECK_THROWS_AS(write_within(10s), context_error);
  CHECK(shared.values == context_values{{"n", "4"}});
  fatal = 0;
  kept.set_reachable(false);
  CHECK(context_trouble_of(kept.write(term, one_change("n", "5"))) ==
        context_trouble::unreachable);
  kept.set_reachable(true);
  CHECK(context_result(kept.load()) == context_values{{"n", "4"}});
  kept.die();
  CHECK_THROWS_AS(write_within(20ms), timed_out);
  CHECK(shared.values == context_values{{"n", "4"}});
}

TEST_SUITE_END();
