// All-gather: every member of a world receives what each member brings, in order of
// ranks. Alone it starts five processes and kills one: its world breaks, the other
// continues. By hand: all_gather --worldinfo 1,0 --worldinfo 2,0;  --worldinfo 1,1;
// 1,2;  2,1;  2,2
#include "collectives/two_worlds.hpp"

mw::task<std::string> step(mw::world& w, int number, const tensor_memory& memory) {
  tensor in = filled(1, digit(w.rank(), number), memory), out(members, memory);
  const auto bring = [&](auto& mine, auto& all) { return w.all_gather(mine, all); };
  co_await tensor::collective(in, out, bring);
  for (mw::rank_t r = 0; r < members; ++r) expect(out.values()[r] == digit(r, number));
  co_return fmt::format("{}", fmt::join(out.values(), " "));
}

int main(int argc, char** argv) {
  return step_in_two_worlds("all_gather", step, argc, argv);
}
