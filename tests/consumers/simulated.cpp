// A test of a consumer: two machines of a simulation form a world, and one is killed.
#include <cstdio>
#include <manyworlds/mw.hpp>
#include <manyworlds/testing.hpp>

using namespace std::chrono_literals;

namespace {

mw::task<mw::failure> wait_for_the_end(mw::runtime& rt, mw::store& store,
                                       mw::rank_t rank) {
  mw::world w(rt, store, {.name = "pair", .rank = rank, .size = 2});
  co_await w;
  co_return co_await w.broken();
}

}  // namespace

int main() {
  mw::simulation sim(7);
  mw::memory_store store;
  mw::simulated_runtime left(sim, "left");
  mw::simulated_runtime right(sim, "right");
  auto told = left->start(wait_for_the_end(*left, store, 0));
  (void)right->start(wait_for_the_end(*right, store, 1));
  sim.after(2s, [&] { sim.kill(right.process()); });
  if (!sim.run_until([&] { return told.is_ready(); }, 1min)) return 1;
  const mw::failure why = told.get();
  std::printf("rank %d: %s\n", why.rank, std::string(name_of(why.cause)).c_str());
  return why.rank == 1 ? 0 : 1;
}
