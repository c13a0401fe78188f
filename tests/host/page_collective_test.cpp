// Small collectives of one host, which go through pages that one member writes and all
// read.
#include <cstring>
#include <deque>

#include "collective_fixture.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;
using namespace std::chrono_literals;

namespace {

const std::vector<operation_kind> paged_kinds{
    operation_kind::broadcast,  operation_kind::reduce,        operation_kind::all_reduce,
    operation_kind::gather,     operation_kind::all_gather,    operation_kind::scatter,
    operation_kind::all_to_all, operation_kind::reduce_scatter};

host_backend_options on_one_host() {
  host_backend_options o;
  o.one_host = true;
  o.world_id = 0x1234567;
  return o;
}

std::vector<ground> page_grounds() {
  std::vector<ground> all;
  for (const ground g : all_grounds()) {
    if (is_shared(g)) all.push_back(g);
  }
  return all;
}

void carry_out_run(cluster& c, collective_run& all) {
  all.start(c);
  REQUIRE(c.until([&] { return all.ended(); }));
  all.check();
  for (rank_t r = 0; r < all.size; ++r) CHECK(c[r].events.reason == "");
}

void barriers(cluster& c, rank_t size, int times) {
  for (int i = 0; i < times; ++i) {
    std::deque<barrier_op> ops(static_cast<std::size_t>(size));
    for (rank_t r = 0; r < size; ++r) c.at(r).start(ops[static_cast<std::size_t>(r)]);
    REQUIRE(c.until([&] {
      return std::all_of(ops.begin(), ops.end(), [](auto& op) { return op.done(); });
    }));
  }
}

std::uint64_t messages_of(cluster& c, rank_t size) {
  std::uint64_t all = 0;
  for (rank_t r = 0; r < size; ++r) all += c.at(r).counters().messages_sent;
  return all;
}

/// A world whose collectives go through pages from now on.
struct paged {
  explicit paged(rank_t size, ground g = ground::shared_simulated,
                 host_backend_options o = on_one_host())
      : c(size, g, o), size(size) {
    barriers(c, size, 16);
  }
  cluster c;
  rank_t size;
};

}  // namespace

TEST_SUITE("host collectives: pages") {
  TEST_CASE("every kind comes out right through pages, for any number of members") {
    for (const ground g : page_grounds()) {
      for (const rank_t size : {2, 3, 4, 8}) {
        paged p(size, g);
        for (const operation_kind kind : paged_kinds) {
          for (const std::size_t count : {0U, 1U, 3U, 26U, 27U, 100U, 1400U, 2000U}) {
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

  TEST_CASE("parts that differ come out right, whichever way they go") {
    paged p(4);
    for (const operation_kind kind :
         {operation_kind::gather, operation_kind::all_gather, operation_kind::scatter,
          operation_kind::all_to_all, operation_kind::reduce_scatter}) {
      for (const std::size_t count : {0U, 1U, 100U, 2000U}) {
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
    paged p(4);
    for (const operation_kind kind : {operation_kind::reduce, operation_kind::all_reduce,
                                      operation_kind::reduce_scatter}) {
      for (const reduction by : {sum, prod, min, max, avg}) {
        CAPTURE(name_of(kind));
        CAPTURE(name_of(by));
        collective_run all(kind, 4, 100, by, 0, false, false);
        carry_out_run(p.c, all);
      }
    }
  }
}
