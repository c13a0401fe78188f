// Scatter: rank 0 has numbers for all members of its world, and each receives its own.
// Alone it starts five processes and kills one: its world breaks, the other continues.
// By hand: scatter --worldinfo 1,0 --worldinfo 2,0;  --worldinfo 1,1;  1,2;  2,1;  2,2
#include "collectives/two_worlds.hpp"

mw::task<std::string> step(mw::world& w, int number, const tensor_memory& memory) {
  tensor in(w.rank() == 0 ? members : 0, memory), out(1, memory);
  for (mw::rank_t r = 0; w.rank() == 0 && r < members; ++r)
    in.values()[r] = digit(r, number);
  const auto hand_out = [&](auto& all, auto& mine) {
    return w.scatter(all, mine, mw::root{0});
  };
  co_await tensor::collective(in, out, hand_out);
  expect(is_all(out, digit(w.rank(), number)));
  if (w.rank() > 0) co_return fmt::format("got {}", out.values()[0]);
  co_return fmt::format("gave {}", fmt::join(in.values(), " "));
}

int main(int argc, char** argv) {
  return step_in_two_worlds("scatter", step, argc, argv);
}
