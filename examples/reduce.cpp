// Reduce: the sum of what all members of a world bring comes to its rank 0. Alone it
// starts five processes and kills one: its world breaks, the other goes on. By hand:
// reduce --worldinfo 1,0 --worldinfo 2,0;  --worldinfo 1,1;  1,2;  2,1;  2,2
#include "collectives/two_worlds.hpp"

mw::task<std::string> step(mw::world& w, int number) {
  const float mine = digit(w.rank(), number);
  const std::vector<float> in(4, mine);
  std::vector<float> out(4);
  co_await w.reduce(in, out, mw::sum, mw::root{0});
  if (w.rank() > 0) co_return fmt::format("brought {}", mine);
  const float a = mine, b = digit(1, number), c = digit(2, number);
  expect(out == std::vector<float>(4, a + b + c));
  co_return fmt::format("{} + {} + {} = {}", a, b, c, out[0]);
}

int main(int argc, char** argv) { return step_in_two_worlds("reduce", step, argc, argv); }
