// Gather: what each member of a world brings comes to its rank 0, in order of ranks.
// Alone it starts five processes and kills one: its world breaks, the other goes on. By
// hand: gather --worldinfo 1,0 --worldinfo 2,0;  --worldinfo 1,1;  1,2;  2,1;  2,2
#include "collectives/two_worlds.hpp"

mw::task<std::string> step(mw::world& w, int number) {
  const std::vector<float> in(1, digit(w.rank(), number));
  std::vector<float> out(w.rank() == 0 ? members : 0);
  co_await w.gather(in, out, mw::root{0});
  if (w.rank() > 0) co_return fmt::format("brought {}", in[0]);
  for (mw::rank_t r = 0; r < members; ++r) expect(out[r] == digit(r, number));
  co_return fmt::format("{}", fmt::join(out, " "));
}

int main(int argc, char** argv) { return step_in_two_worlds("gather", step, argc, argv); }
