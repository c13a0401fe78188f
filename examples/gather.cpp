// Gather: rank 0 of a world receives what each member brings, in order of ranks. Alone
// it starts five processes and kills one: its world breaks, the other continues. By
// hand: gather --worldinfo 1,0 --worldinfo 2,0;  --worldinfo 1,1;  1,2;  2,1;  2,2
#include "collectives/two_worlds.hpp"

mw::task<std::string> step(mw::world& w, int number, const tensor_memory& memory) {
  tensor in = filled(1, digit(w.rank(), number), memory);
  tensor out(w.rank() == 0 ? members : 0, memory);
  const auto bring = [&](auto& mine, auto& all) {
    return w.gather(mine, all, mw::root{0});
  };
  co_await tensor::collective(in, out, bring);
  if (w.rank() > 0) co_return fmt::format("brought {}", in.values()[0]);
  for (mw::rank_t r = 0; r < members; ++r) expect(out.values()[r] == digit(r, number));
  co_return fmt::format("{}", fmt::join(out.values(), " "));
}

int main(int argc, char** argv) { return step_in_two_worlds("gather", step, argc, argv); }
