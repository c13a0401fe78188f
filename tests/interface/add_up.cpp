// The program that examples/coming_from.md shows whole, beside one of torch.distributed.
#include <cstdio>
#include <cstdlib>
#include <manyworlds/mw.hpp>
#include <optional>
#include <vector>

mw::task<void> add_up(mw::runtime& rt, mw::store& store, int rank) {
  mw::world w(rt, store, {.name = "sum", .rank = rank, .size = 2});
  co_await w;
  std::vector<float> x(4, static_cast<float>(rank + 1));
  co_await w.all_reduce(x, mw::sum);
  std::printf("%g %g %g %g\n", x[0], x[1], x[2], x[3]);
  co_await w.leave();
}

int main(int, char** words) {
  const int rank = std::atoi(words[1]);
  mw::runtime rt;
  std::optional<mw::hosted_store> host;  // as PyTorch's rank 0 hosts its TCPStore
  if (rank == 0) host.emplace(rt, words[2]);
  mw::tcp_store store(rt, words[2]);
  rt.run(add_up(rt, store, rank));
}
