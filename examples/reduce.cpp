// Reduce: rank 0 of a world receives the sum of what all members bring. Alone it starts
// five processes and kills one: its world breaks, the other continues. By hand: reduce
// --worldinfo 1,0 --worldinfo 2,0;  --worldinfo 1,1;  1,2;  2,1;  2,2
#include "collectives/two_worlds.hpp"

mw::task<std::string> step(mw::world& w, int number, const tensor_memory& memory) {
  const float mine = digit(w.rank(), number);
  tensor in = filled(4, mine, memory), out(4, memory);
  const auto add_up = [&](auto& each, auto& sum) {
    return w.reduce(each, sum, mw::sum, mw::root{0});
  };
  co_await tensor::collective(in, out, add_up);
  if (w.rank() > 0) co_return fmt::format("brought {}", mine);
  const float a = mine, b = digit(1, number), c = digit(2, number);
  expect(is_all(out, a + b + c));
  co_return fmt::format("{} + {} + {} = {}", a, b, c, out.values()[0]);
}

int main(int argc, char** argv) { return step_in_two_worlds("reduce", step, argc, argv); }
