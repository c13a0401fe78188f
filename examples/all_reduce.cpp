// All-reduce: every member of a world receives the sum of what all bring. Alone it
// starts five processes and kills one: its world breaks, the other continues. By hand:
// all_reduce --worldinfo 1,0 --worldinfo 2,0;  --worldinfo 1,1;  1,2;  2,1;  2,2
#include "collectives/two_worlds.hpp"

mw::task<std::string> step(mw::world& w, int number, const tensor_memory& memory) {
  const float a = digit(0, number), b = digit(1, number), c = digit(2, number);
  tensor x = filled(4, digit(w.rank(), number), memory);
  const auto add_up = [&](auto& in, auto&) { return w.all_reduce(in, mw::sum); };
  co_await tensor::collective(x, x, add_up);
  expect(is_all(x, a + b + c));
  co_return fmt::format("{} + {} + {} = {}", a, b, c, x.values()[0]);
}

int main(int argc, char** argv) {
  return step_in_two_worlds("all_reduce", step, argc, argv);
}
