// Broadcast: rank 0's numbers come to all of its world. Alone it starts five processes
// and kills one: its world breaks, the other goes on. By hand, one process per terminal:
// broadcast --worldinfo 1,0 --worldinfo 2,0;  --worldinfo 1,1;  1,2;  2,1;  2,2
#include "collectives/two_worlds.hpp"

mw::task<std::string> step(mw::world& w, int number) {
  std::vector<float> x(4, w.rank() == 0 ? digit(0, number) : -1);
  co_await w.broadcast(x, mw::root{0});
  expect(x == std::vector<float>(4, digit(0, number)));
  co_return fmt::format("{}", fmt::join(x, " "));
}

int main(int argc, char** argv) {
  return step_in_two_worlds("broadcast", step, argc, argv);
}
