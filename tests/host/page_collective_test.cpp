// Small collectives of one host, which go through pages that one member writes and all
// read.
#include <poll.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "host/collective_signature.hpp"
#include "page_fixture.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;
using namespace std::chrono_literals;

namespace {

const std::vector<operation_kind> paged_kinds{
    operation_kind::broadcast,  operation_kind::reduce,        operation_kind::all_reduce,
    operation_kind::gather,     operation_kind::all_gather,    operation_kind::scatter,
    operation_kind::all_to_all, operation_kind::reduce_scatter};

}  // namespace

TEST_SUITE("host collectives: pages") {
  TEST_CASE("every kind comes out right through pages, for any number of members") {
    for (const ground g : page_grounds()) {
      for (const rank_t size : {2, 3, 4, 8}) {
        paged p(size, g, with_cpus(size));
        for (const operation_kind kind : paged_kinds) {
          for (const std::size_t count : {0U, 1U, 3U, 26U, 27U, 100U, 1024U, 1025U, 2000U,
                                          2048U, 2049U, 8000U, 20'000U}) {
            for (const bool in_place : {false, true}) {
              CAPTURE(std::string(name_of(g)));
              CAPTURE(name_of(kind));
              CAPTURE(size);
              CAPTURE(count);
              CAPTURE(in_place);
              collective_run all(kind, size, count, sum, (size - 1) / 2, in_place, false);
              carry_out_run(p.c, all);
            }
          }
        }
      }
    }
  }

  TEST_CASE("after the first collectives small ones send no message") {
    for (const ground g : page_grounds()) {
      paged p(3, g);
      const std::uint64_t before = messages_of(p.c, 3);
      barriers(p.c, 3, 20);
      for (const operation_kind kind : paged_kinds) {
        CAPTURE(name_of(kind));
        collective_run all(kind, 3, 20, sum, 1, false, false);
        carry_out_run(p.c, all);
      }
      CHECK(messages_of(p.c, 3) == before);
    }
  }

  TEST_CASE("what goes in rounds sends no message, with a CPU for each alone") {
    for (const rank_t cpus : {2, 3}) {
      paged p(3, ground::shared_simulated, with_cpus(cpus));
      for (const operation_kind kind : paged_kinds) {
        CAPTURE(name_of(kind));
        CAPTURE(cpus);
        const std::uint64_t before = messages_of(p.c, 3);
        // 12 KB of each, and a place holds 8 KiB.
        collective_run all(kind, 3, 3'000, sum, 1, false, false);
        carry_out_run(p.c, all);
        const bool is_in_rounds = cpus == 3 && kind != operation_kind::reduce_scatter;
        CHECK((messages_of(p.c, 3) == before) == is_in_rounds);
      }
    }
  }

  TEST_CASE("a member that leaves in the midst of rounds ends them for the others") {
    for (const operation_kind kind :
         {operation_kind::broadcast, operation_kind::all_reduce}) {
      for (const rank_t leaver : {0, 1, 2}) {
        CAPTURE(name_of(kind));
        CAPTURE(leaver);
        paged p(3, ground::shared_simulated, with_cpus(3));
        const std::uint64_t before = messages_of(p.c, 3);
        // 25 rounds, and a root is at most seven ahead of the others.
        std::vector<std::vector<std::int32_t>> data(3,
                                                    std::vector<std::int32_t>(50'000, 1));
        std::deque<collective_op> ops;
        for (rank_t r = 0; r < 3; ++r) {
          // The one that leaves has begun, and the last of the others has not.
          if (r == (leaver + 1) % 3) continue;
          auto& mine = data[static_cast<std::size_t>(r)];
          auto& op = ops.emplace_back(kind, mine, mine);
          op.part.root = 0;
          p.c.at(r).start(op);
        }
        p.c.settle();
        CHECK(messages_of(p.c, 3) == before);
        for (auto& op : ops) CHECK_FALSE(op.ended());
        p.c.at(leaver).leave(p.c[leaver].gone, p.c[leaver].home->now() + 5s);
        const auto late = static_cast<std::size_t>((leaver + 1) % 3);
        auto& op = ops.emplace_back(kind, data[late], data[late]);
        op.part.root = 0;
        p.c.at(static_cast<rank_t>(late)).start(op);
        REQUIRE(p.c.until([&] {
          return std::all_of(ops.begin(), ops.end(), [](auto& o) { return o.ended(); });
        }));
        // A reader that has left is missed by the root alone, in its next round.
        const bool is_for_all = kind == operation_kind::all_reduce || leaver == 0;
        for (auto& o : ops) {
          if (is_for_all) CHECK(o.failed(cause::closed));
        }
        CHECK(std::any_of(ops.begin(), ops.end(),
                          [](auto& o) { return o.failed(cause::closed); }));
      }
    }
  }

  TEST_CASE("parts that differ come out right, whichever way they go") {
    paged p(4, ground::shared_simulated, with_cpus(4));
    for (const operation_kind kind :
         {operation_kind::gather, operation_kind::all_gather, operation_kind::scatter,
          operation_kind::all_to_all, operation_kind::reduce_scatter}) {
      for (const std::size_t count : {0U, 1U, 100U, 2000U, 3000U, 9000U}) {
        for (const bool in_place : {false, true}) {
          CAPTURE(name_of(kind));
          CAPTURE(count);
          collective_run all(kind, 4, count, sum, 2, in_place, true);
          carry_out_run(p.c, all);
        }
      }
    }
  }

  TEST_CASE("every reduction reduces, in the order of ranks") {
    paged p(4, ground::shared_simulated, with_cpus(4));
    for (const operation_kind kind : {operation_kind::reduce, operation_kind::all_reduce,
                                      operation_kind::reduce_scatter}) {
      for (const reduction by : {sum, prod, min, max, avg}) {
        CAPTURE(name_of(kind));
        CAPTURE(name_of(by));
        for (const std::size_t count : {100U, 5000U}) {
          collective_run all(kind, 4, count, by, 0, false, false);
          carry_out_run(p.c, all);
        }
      }
    }
  }

  TEST_CASE("a root that only gives is a few broadcasts ahead, and all come in order") {
    for (const ground g : page_grounds()) {
      CAPTURE(std::string(name_of(g)));
      constexpr int many = 40;
      paged p(3, g);
      std::vector<std::vector<std::int32_t>> sent;
      std::vector<std::vector<std::int32_t>> got;
      for (int i = 0; i < many; ++i) {
        sent.emplace_back(i % 3 == 0 ? 700 : 5, i);
        got.emplace_back(sent.back().size(), -1);
      }
      std::deque<collective_op> gives;
      std::deque<collective_op> takes;
      std::deque<collective_op> also;
      std::vector<std::vector<std::int32_t>> others = got;
      for (std::size_t i = 0; i < many; ++i) {
        auto& op = gives.emplace_back(operation_kind::broadcast, sent[i], sent[i]);
        op.part.root = 1;
        p.c.at(1).start(op);
      }
      p.c.settle();
      CHECK(gives[0].done());
      CHECK_FALSE(gives.back().ended());
      for (std::size_t i = 0; i < many; ++i) {
        auto& op = takes.emplace_back(operation_kind::broadcast, got[i], got[i]);
        op.part.root = 1;
        p.c.at(0).start(op);
        auto& other = also.emplace_back(operation_kind::broadcast, others[i], others[i]);
        other.part.root = 1;
        p.c.at(2).start(other);
      }
      REQUIRE(p.c.until([&] {
        return gives.back().ended() && takes.back().ended() && also.back().ended();
      }));
      CHECK(got == sent);
      CHECK(others == sent);
    }
  }

  TEST_CASE("a member that comes to its number before all have answered waits for them") {
    cluster c(3, ground::shared_simulated, on_one_host());
    barriers(c, 3, 3);
    // Member 2 is away: it answers nothing, and only members 0 and 1 go on.
    c.sim().stop(*c[2].process);
    std::deque<collective_op> ops;
    std::int32_t value = 7;
    for (int i = 0; i < 40; ++i) {
      auto& op = ops.emplace_back(operation_kind::broadcast, std::span(&value, 1),
                                  std::span(&value, 1));
      op.part.root = 0;
      c.at(0).start(op);
    }
    c.sim().run_for(std::chrono::milliseconds(100));
    c.sim().resume(*c[2].process);
    std::deque<collective_op> others;
    std::vector<std::int32_t> got(80, 0);
    for (std::size_t i = 0; i < got.size(); ++i) {
      auto& op = others.emplace_back(operation_kind::broadcast, std::span(&got[i], 1),
                                     std::span(&got[i], 1));
      op.part.root = 0;
      c.at(i % 2 == 0 ? 1 : 2).start(op);
    }
    REQUIRE(c.until(
        [&] { return ops.back().done() && others[78].done() && others[79].done(); }));
    CHECK(std::all_of(got.begin(), got.end(), [](std::int32_t v) { return v == 7; }));
  }

  TEST_CASE("an overdue collective names the absent ranks, through pages too") {
    paged p(3);
    std::deque<barrier_op> ops(2);
    p.c.at(0).start(ops[0]);
    p.c.at(2).start(ops[1]);
    CHECK_FALSE(p.c.at(2).withdraw(ops[1]));
    p.c.sim().run_for(5500ms);
    REQUIRE(p.c[0].events.warnings.size() == 1);
    CHECK(p.c[0].events.warnings[0] == "barrier 17 waits for rank 1");
    const auto status = p.c.at(0).collective();
    REQUIRE(status);
    CHECK(status->absent == std::vector<rank_t>{1});
    p.c.sim().run_for(56s);
    CHECK(p.c[0].events.cause == cause::overdue);
    CHECK(p.c[0].events.broken_by == std::vector<rank_t>{1});
    CHECK_FALSE(ops[0].ended());
  }

  TEST_CASE(
      "what a member entered before it left counts, and what it did not is closed") {
    for (const ground g : page_grounds()) {
      for (rank_t leaver = 0; leaver < 3; ++leaver) {
        CAPTURE(std::string(name_of(g)));
        CAPTURE(leaver);
        paged p(3, g);
        cluster& c = p.c;
        std::deque<barrier_op> first(3);
        for (rank_t r = 0; r < 3; ++r) c.at(r).start(first[static_cast<std::size_t>(r)]);
        REQUIRE(c.until([&] { return first[static_cast<std::size_t>(leaver)].ended(); }));
        // Others wait in the next one already.
        std::deque<barrier_op> second(3);
        for (rank_t r = 0; r < 3; ++r) {
          if (r != leaver) c.at(r).start(second[static_cast<std::size_t>(r)]);
        }
        c.settle();
        c.at(leaver).leave(c[leaver].gone, c[leaver].home->now() + 5s);
        REQUIRE(c.until([&] { return c[leaver].gone.runs == 1; }));
        REQUIRE(c.until([&] {
          return std::count_if(second.begin(), second.end(),
                               [](auto& op) { return op.ended(); }) == 2;
        }));
        for (rank_t r = 0; r < 3; ++r) {
          CHECK(first[static_cast<std::size_t>(r)].done());
          if (r != leaver)
            CHECK(second[static_cast<std::size_t>(r)].failed(cause::closed));
          CHECK(c[r].events.quiet());
        }
      }
    }
  }

  TEST_CASE("a root cannot give to a member that has left, nor can that one go on") {
    paged p(3);
    p.c.at(2).leave(p.c[2].gone, p.c[2].home->now() + 5s);
    REQUIRE(p.c.until([&] { return p.c[2].gone.runs == 1; }));
    std::int32_t value = 1;
    collective_op op(operation_kind::broadcast, std::span(&value, 1),
                     std::span(&value, 1));
    op.part.root = 0;
    p.c.at(0).start(op);
    REQUIRE(p.c.until([&] { return op.ended(); }));
    CHECK(op.failed(cause::closed));
    barrier_op late;
    p.c.at(1).start(late);
    REQUIRE(p.c.until([&] { return late.ended(); }));
    CHECK(late.failed(cause::closed));
  }

  TEST_CASE(
      "a member that leaves in the midst of a collective touches nothing afterwards") {
    paged p(2);
    std::vector<std::int32_t> in(10, 1);
    std::vector<std::int32_t> out(10, -1);
    collective_op op(operation_kind::all_reduce, in, out);
    p.c.at(0).start(op);
    p.c.at(0).leave(p.c[0].gone, p.c[0].home->now() + 5s);
    REQUIRE(p.c.until([&] { return op.ended(); }));
    CHECK(op.failed(cause::closed));
    collective_op other(operation_kind::all_reduce, in, in);
    p.c.at(1).start(other);
    p.c.settle();
    CHECK(std::all_of(out.begin(), out.end(), [](std::int32_t v) { return v == -1; }));
  }

  TEST_CASE("two roots that both only give learn that they disagree, in either order") {
    for (const operation_kind kind :
         {operation_kind::broadcast, operation_kind::scatter}) {
      CAPTURE(name_of(kind));
      for (const rank_t first : {0, 1}) {
        paged p(2);
        std::vector<std::int32_t> in(kind == operation_kind::scatter ? 4 : 2, 1);
        std::vector<std::int32_t> out(2);
        std::deque<collective_op> ops;
        for (rank_t r = 0; r < 2; ++r) {
          auto& op = ops.emplace_back(kind, in, out);
          op.part.root = r;
        }
        p.c.at(first).start(ops[static_cast<std::size_t>(first)]);
        p.c.settle();
        p.c.at(1 - first).start(ops[static_cast<std::size_t>(1 - first)]);
        p.c.sim().run_for(2s);
        const auto& found = p.c[1 - first].events;
        CHECK(found.cause == cause::mismatch);
        CHECK_MESSAGE(found.reason.find("root 0") != std::string::npos, found.reason);
        CHECK_MESSAGE(found.reason.find("root 1") != std::string::npos, found.reason);
      }
    }
  }

  TEST_CASE("law 9: a member that may not use pages disagrees with one that may") {
    // Otherwise one would look for a page, the other wait for a message, and no word
    // would tell them apart.
    host::collective_shape shape;
    shape.kind = operation_kind::barrier;
    const host::collective_signature by_rule(shape, algorithm::flat, 17, false);
    const host::collective_signature by_default(shape, algorithm::flat, 17, true);
    CHECK_FALSE(by_rule.agrees_with(by_default));
    CHECK(by_rule.text(by_default) == "barrier 17 (by a rule of its own)");
    CHECK(by_default.text(by_rule) == "barrier 17 (by the default rules)");
  }

  TEST_CASE(
      "members that disagree break by what differs, also with what goes by messages") {
    std::vector<float> few(8, 1);
    std::vector<float> many(1 << 18, 1);
    std::vector<float> in_rounds(1 << 15, 1);
    std::vector<std::int32_t> n(8, 1);
    using enum operation_kind;
    struct row {
      operation_kind first;
      const_buffer_view in;
      operation_kind second;
      const_buffer_view other;
      const char* says;
    };
    std::vector<float> out(1 << 18);
    std::vector<std::int32_t> whole(8);
    const std::vector<row> rows{
        {all_reduce, few, all_reduce, many, "with other counts"},
        {all_reduce, many, all_reduce, few, "with other counts"},
        {all_reduce, few, all_reduce, in_rounds, "with other counts"},
        {all_reduce, in_rounds, all_reduce, many, "with other counts"},
        {all_reduce, few, all_reduce, n, "int32"},
        {barrier, {}, all_reduce, few, "barrier 17"},
        {all_reduce, few, barrier, {}, "barrier 17"},
    };
    for (const row& r : rows) {
      CAPTURE(r.says);
      paged p(2, ground::shared_simulated, with_cpus(2));
      std::deque<collective_op> ops;
      for (const bool is_first : {true, false}) {
        const operation_kind kind = is_first ? r.first : r.second;
        if (kind == barrier) {
          ops.emplace_back(kind);
          continue;
        }
        const const_buffer_view& in = is_first ? r.in : r.other;
        const bool is_whole = in.type() == dtype::int32;
        ops.emplace_back(kind, in,
                         is_whole ? buffer_view(std::span(whole.data(), in.count()))
                                  : buffer_view(std::span(out.data(), in.count())));
      }
      p.c.at(0).start(ops[0]);
      p.c.at(1).start(ops[1]);
      p.c.sim().run_for(3s);
      const bool at_first = p.c[0].events.cause == cause::mismatch;
      REQUIRE((at_first || p.c[1].events.cause == cause::mismatch));
      const std::string& text = p.c[at_first ? 0 : 1].events.reason;
      CHECK_MESSAGE(text.find(r.says) != std::string::npos, text);
      CHECK_MESSAGE(text.find("rank 0") != std::string::npos, text);
      CHECK_MESSAGE(text.find("rank 1") != std::string::npos, text);
    }
  }

  TEST_CASE("a member that sleeps in a collective is woken by the last to enter") {
    paged p(3, ground::asking);
    cluster& c = p.c;
    const auto sleeps = [&](rank_t rank) {
      for (int tries = 0; tries < 1000; ++tries) {
        if (c[rank].home->prepare_wait() != duration::zero()) return true;
        c[rank].home->turn();
      }
      return false;
    };
    const auto is_woken = [&](rank_t rank, int limit_ms) {
      pollfd bell{c[rank].home->io().descriptor(), POLLIN, 0};
      return ::poll(&bell, 1, limit_ms) == 1;
    };
    std::deque<barrier_op> ops(3);
    c.at(0).start(ops[0]);
    c.settle();
    REQUIRE(sleeps(0));
    c.at(1).start(ops[1]);
    // It is not the last that member 0 waits for.
    CHECK_FALSE(is_woken(0, 0));
    REQUIRE(sleeps(1));
    c.at(2).start(ops[2]);
    CHECK(is_woken(0, 5000));
    CHECK(is_woken(1, 5000));
    REQUIRE(c.until([&] { return ops[0].done() && ops[1].done() && ops[2].done(); }));

    std::int32_t value = 3;
    std::int32_t got = 0;
    collective_op takes(operation_kind::broadcast, std::span(&got, 1),
                        std::span(&got, 1));
    takes.part.root = 2;
    c.at(0).start(takes);
    c.settle();
    REQUIRE(sleeps(0));
    collective_op gives(operation_kind::broadcast, std::span(&value, 1),
                        std::span(&value, 1));
    gives.part.root = 2;
    c.at(2).start(gives);
    CHECK(gives.done());
    CHECK(is_woken(0, 5000));
    REQUIRE(c.until([&] { return takes.done(); }));
    CHECK(got == 3);
  }

  TEST_CASE("law 6: a thousand epochs leave no page and no descriptor behind") {
    const auto pages = [] {
      int count = 0;
      std::ifstream maps("/proc/self/maps");
      std::string line;
      while (std::getline(maps, line)) {
        if (line.find("manyworlds-page") != std::string::npos) ++count;
      }
      return count;
    };
    const auto descriptors = [] {
      return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                           std::filesystem::directory_iterator());
    };
    const auto before = descriptors();
    for (int epoch = 0; epoch < 1000; ++epoch) {
      host_backend_options o = on_one_host();
      o.world_id = static_cast<std::uint64_t>(epoch) + 1;
      cluster c(2, ground::shared_simulated, o, static_cast<std::uint64_t>(epoch));
      // In some the pages are under way, in others in use.
      barriers(c, 2, epoch % 16);
    }
    CHECK(pages() == 0);
    CHECK(descriptors() == before);
  }
}
