// Scatter: rank 0 has numbers for all members of its world, and each gets its own. Alone
// it starts five processes and kills one: its world breaks, the other goes on. By hand:
// scatter --worldinfo 1,0 --worldinfo 2,0;  --worldinfo 1,1;  1,2;  2,1;  2,2
#include "collectives/two_worlds.hpp"

mw::task<std::string> step(mw::world& w, int number) {
  std::vector<float> in, out(1);
  for (mw::rank_t r = 0; w.rank() == 0 && r < members; ++r)
    in.push_back(digit(r, number));
  co_await w.scatter(in, out, mw::root{0});
  expect(out[0] == digit(w.rank(), number));
  if (w.rank() > 0) co_return fmt::format("got {}", out[0]);
  co_return fmt::format("gave {}", fmt::join(in, " "));
}

int main(int argc, char** argv) {
  return step_in_two_worlds("scatter", step, argc, argv);
}
