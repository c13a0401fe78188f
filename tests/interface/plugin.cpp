// A plugin that links the static library, as an engine's backend is loaded by a server:
// tests/checks/exported.py looks at what it exports, and runs it.
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <manyworlds/mw.hpp>
#include <span>

using namespace std::chrono_literals;

namespace {

mw::task<int> member(mw::runtime& rt, mw::store& store, int rank) {
  mw::world w(rt, store, {.name = "plugin", .rank = rank, .size = 2, .form = 10s});
  co_await w;
  std::array sum{rank + 1};
  co_await w.all_reduce(std::span(sum), mw::sum);
  co_await w.leave();
  co_return sum[0];
}

}  // namespace

/// The sum of the ranks of a world of two, each and one: 3. -1: it failed.
extern "C" __attribute__((visibility("default"))) int sum_of_a_world() {
  try {
    mw::memory_store store;
    mw::runtime first;
    mw::runtime second;
    auto one = first.start(member(first, store, 0));
    auto other = second.start(member(second, store, 1));
    if (!one.wait_for(20s) || !other.wait_for(20s)) return -1;
    return one.get() == other.get() ? one.get() : -1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return -1;
  }
}
