// What a profiler is told of GPU worlds: tests/nccl/nvtx_recorder.cpp stands for one.
#include "nccl/ranges.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "gpu_worlds.hpp"
#include "nccl/nccl_library.hpp"
#include "nccl/shared_library.hpp"
#include "nvtx_recorder.hpp"

using namespace manyworlds;
using namespace manyworlds::nccl_tests;
using manyworlds::testing::recorded_event;
using manyworlds::testing::told;

namespace {

using floats = std::vector<float>;

// Before the first call of NVTX's, which looks for its tool once a process.
const bool chooses_recorder = [] {
  return ::setenv("NVTX_INJECTION64_PATH", MANYWORLDS_TEST_RECORDER, 1) == 0;
}();

std::vector<recorded_event> all_recorded() {
  REQUIRE(chooses_recorder);
  const nccl::shared_library recorder(MANYWORLDS_TEST_RECORDER);
  auto* const recorded = recorder.find<manyworlds::testing::recorded_function>(
      manyworlds::testing::recorded_name);
  REQUIRE((recorded != nullptr));
  std::vector<recorded_event> all;
  recorded(
      [](void* into, const recorded_event& event) {
        static_cast<std::vector<recorded_event>*>(into)->push_back(event);
      },
      &all);
  return all;
}

/// Of one kind, with this text in them.
std::vector<recorded_event> recorded(told what, const std::string& part) {
  std::vector<recorded_event> found = all_recorded();
  std::erase_if(found, [&](const recorded_event& e) {
    return e.what != what || e.text.find(part) == std::string::npos;
  });
  return found;
}

/// Every text of a kind that ends with the world's label, and how often it came.
std::map<std::string, int> texts_of(told what, const std::string& label) {
  std::map<std::string, int> counted;
  for (const recorded_event& e : recorded(what, label)) {
    CHECK(e.domain == "manyworlds");
    if (e.text.ends_with(" " + label)) ++counted[e.text];
  }
  return counted;
}

/// Each start has its end, later, and only one; each thread pops what it pushed.
void check_balance() {
  std::set<std::uint64_t> open;
  std::map<::pid_t, int> depth;
  for (const recorded_event& e : all_recorded()) {
    if (e.domain != "manyworlds") continue;
    if (e.what == told::start) CHECK(open.insert(e.id).second);
    if (e.what == told::end) CHECK(open.erase(e.id) == 1);
    if (e.what == told::push) ++depth[e.thread];
    if (e.what == told::pop) CHECK(--depth[e.thread] >= 0);
  }
  CHECK(open.empty());
  for (const auto& [thread, left] : depth) CHECK(left == 0);
}

world_options named(const char* name) {
  world_options options;
  options.name = name;
  return options;
}

}  // namespace

TEST_SUITE("ranges") {
  TEST_CASE("operations of a world are ranges with their names, and all of them end") {
    NEEDS_OWN_DEVICES(2);
    in_world(
        2,
        [](member& m, world& w) -> task<void> {
          auto x = co_await m.on_device(floats(1000, 1));
          auto y = co_await m.on_device(floats(1000, 2));
          const rank_t peer = 1 - m.rank;
          for (int i = 0; i < 3; ++i) co_await w.all_reduce(x, sum);
          if (m.rank == 0) {
            co_await w.send(x, to{peer});
          } else {
            co_await w.recv(x, from{peer});
          }
          const auto nothing = [](ncclComm_t, cudaStream_t) {};
          co_await w.native(nothing);
          co_await w.group(w.send(x, to{peer}).unmatched(),
                           w.recv(y, from{peer}).unmatched());
        },
        named("shown"));
    check_balance();
    const std::map<std::string, int> begun{
        {"all_reduce shown@1", 6},
        {"native shown@1", 2},
        {"recv shown@1", 3},
        {"send shown@1", 3},
    };
    CHECK(texts_of(told::start, "shown@1") == begun);
    // What is launched as one is shown as one.
    const std::map<std::string, int> launched{
        {"all_reduce shown@1", 6}, {"group shown@1", 2}, {"native shown@1", 2},
        {"recv shown@1", 1},       {"send shown@1", 1},  {"make communicator shown@1", 2},
    };
    CHECK(texts_of(told::push, "shown@1") == launched);
    // The bytes of its views, from and into which it sums.
    for (const told what : {told::start, told::push}) {
      for (const recorded_event& e : recorded(what, "all_reduce shown@1")) {
        CHECK(e.payload == 8000);
      }
    }
  }

  TEST_CASE("what a break cuts short ends too, and the next epoch has its own names") {
    NEEDS_OWN_DEVICES(2);
    run_members(
        2,
        [](member& m, world_options options) -> task<void> {
          world w(m.rt, m.st, options);
          co_await w;
          co_await w.device_ready();
          auto x = co_await m.on_device(floats(100, 1));
          if (m.rank == 0) {
            // The peer never enters: NCCL waits in its kernel until the break.
            (void)co_await w.all_reduce(x, sum).unmatched().enqueue();
            const int word = 1;
            co_await w.send_message(word, to{1});
            co_await w.broken();
          } else {
            co_await w.recv_message<int>(from{0});
            w.fail("enough");
          }
          co_await w.drained();
          w = co_await w.reform();
          co_await w.all_reduce(x, sum);
          co_await w.leave();
        },
        named("broken"));
    check_balance();
    CHECK(texts_of(told::start, "broken@1") ==
          std::map<std::string, int>{{"all_reduce broken@1", 1}});
    CHECK(texts_of(told::start, "broken@2") ==
          std::map<std::string, int>{{"all_reduce broken@2", 2}});
  }

  TEST_CASE("a communicator is marked when it is made and when it is freed") {
    NEEDS_OWN_DEVICES(2);
    in_world(
        2, [](member&, world& w) -> task<void> { co_await w.device_ready(); },
        named("marked"));
    const auto made = recorded(told::mark, "communicator marked@1 made: comm 0x");
    const auto freed = recorded(told::mark, "communicator marked@1 freed: comm 0x");
    REQUIRE(made.size() == 2);
    REQUIRE(freed.size() == 2);
    for (const recorded_event& m : made) {
      const std::string comm = m.text.substr(m.text.find("comm 0x"));
      CHECK(std::any_of(freed.begin(), freed.end(),
                        [&](const recorded_event& f) { return f.text.ends_with(comm); }));
    }
  }

  TEST_CASE("threads and streams of a world bear names") {
    NEEDS_OWN_DEVICES(2);
    in_world(
        2, [](member&, world& w) -> task<void> { co_await w.device_ready(); },
        named("threaded"));
    const int device = manyworlds::testing::first_device();
    for (const std::string& each :
         {"mw-launch-" + std::to_string(device), "mw-watch-" + std::to_string(device),
          std::string("mw-nccl-help")}) {
      CAPTURE(each);
      CHECK_FALSE(recorded(told::thread, each).empty());
    }
    CHECK(recorded(told::stream, "threaded@1").size() == 2);
  }
}
