// Sessions: one controller drives workers that are threads, over the product's worlds.
#include "manyworlds/spmd/session.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "manyworlds/mw.hpp"
#include "manyworlds/spmd.hpp"

namespace manyworlds::spmd_tests {

namespace {

using namespace std::chrono_literals;

struct scaled_layer {
  int scale = 1;
};

constexpr remote_function<scaled_layer(int)> load_layer{"load", alone};
constexpr remote_function<std::vector<int>(const scaled_layer&, std::vector<int>)> scaled{
    "scaled"};
constexpr remote_function<int()> rank_of{"rank_of"};
constexpr remote_function<int(int)> fails_on{"fails_on"};
constexpr remote_function<int(const int&)> plus_one{"plus_one"};

const function_table& session_functions() {
  static const function_table all{
      {load_layer, [](const worker& me, int scale) { return scaled_layer{scale + me.id()}; }},
      {scaled,
       [](worker& me, const scaled_layer& by, std::vector<int> x) -> task<std::vector<int>> {
         for (int& each : x) each *= by.scale;
         co_await me.world().all_reduce(x, sum);
         co_return x;
       }},
      {rank_of, [](const worker& me) { return static_cast<int>(me.rank()); }},
      {fails_on,
       [](worker& me, int which) -> task<int> {
         if (me.id() == which) throw std::runtime_error("asked to fail");
         std::vector<int> x{1};
         co_await me.world().all_reduce(x, sum);
         co_return x[0];
       }},
      {plus_one, [](const int& x) { return x + 1; }},
  };
  return all;
}

}  // namespace

TEST_CASE("a session's workers run what the controller calls, and exchange their data") {
  runtime rt;
  rt.run([](runtime& on) -> task<void> {
    session s = co_await session::start(on, threads(2, session_functions()));
    dref<scaled_layer> w = co_await s.call(load_layer, 10);
    const std::vector<int> x{1, 2, 3};
    const std::vector<int> y = co_await s.call(scaled, w, x).from(0).within(5s);
    CHECK(y == std::vector<int>{21, 42, 63});
    const std::vector<int> ranks = co_await s.call(rank_of).all();
    CHECK(ranks == std::vector<int>{0, 1});
    co_await s.sync();
    co_await s.close();
  }(rt));
}

TEST_CASE("S-b: a call that throws on one worker is ended on all, and later ones go on") {
  runtime rt;
  rt.run([](runtime& on) -> task<void> {
    session s = co_await session::start(on, threads(3, session_functions()));
    std::string said;
    try {
      (void)co_await s.call(fails_on, 1);
    } catch (const call_error& e) {
      said = e.what();
      CHECK(e.cause() == cause::handler_failed);
      CHECK(e.function() == "fails_on");
      REQUIRE(e.workers().size() >= 1);
      CHECK(e.workers()[0].worker == 1);
      CHECK(e.workers()[0].text == "asked to fail");
    }
    CHECK(said.find("asked to fail") != std::string::npos);
    // The world of the mesh is there again.
    const std::vector<int> all = co_await s.call(fails_on, 7).all();
    CHECK(all == std::vector<int>{3, 3, 3});
    dref<int> y = co_await s.issue(fails_on, 2);
    auto z = s.issue(plus_one, y);
    dref<int> made = co_await std::move(z);
    bool was_told = false;
    try {
      co_await s.sync();
    } catch (const call_error& e) {
      was_told = true;
      CHECK(e.function() == "fails_on");
    }
    CHECK(was_told);
    co_await s.close();
  }(rt));
}

}  // namespace manyworlds::spmd_tests
