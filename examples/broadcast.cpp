// Broadcast: all members of a world receive rank 0's numbers. Alone it starts five
// processes and kills one: its world breaks, the other continues. By hand, one process
// per terminal: broadcast --worldinfo 1,0 --worldinfo 2,0;  --worldinfo 1,1;  1,2;
// 2,1;  2,2
#include "collectives/two_worlds.hpp"

mw::task<std::string> step(mw::world& w, int number, const tensor_memory& memory) {
  tensor x = filled(4, w.rank() == 0 ? digit(0, number) : -1, memory);
  const auto spread = [&](auto& in, auto&) { return w.broadcast(in, mw::root{0}); };
  co_await tensor::collective(x, x, spread);
  expect(is_all(x, digit(0, number)));
  co_return fmt::format("{}", fmt::join(x.values(), " "));
}

int main(int argc, char** argv) {
  return step_in_two_worlds("broadcast", step, argc, argv);
}
