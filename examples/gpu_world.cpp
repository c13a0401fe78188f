// The GPU world of README.md: one member of two, on the device of its rank.
#include <cstdlib>
#include <manyworlds/gpu.hpp>
#include <manyworlds/mw.hpp>
#include <optional>

int main(int count, char** words) {
  const int rank = count > 1 ? std::atoi(words[1]) : 0;
  mw::runtime rt;
  std::optional<mw::hosted_store> host;
  if (rank == 0) host.emplace(rt, "127.0.0.1:29500");
  mw::tcp_store store(rt, "127.0.0.1:29500");
  const mw::device_pool pool(rank);
  const mw::owned_stream stream(rank);
  const auto add_up = [&](mw::world& w) -> mw::task<void> {
    mw::device_buffer<float> x(pool, 1 << 20, stream);  // your kernels fill it, there
    co_await w.all_reduce(x, mw::sum);  // begins after them; ends when x has the sums
  };
  mw::world_options gpus{.name = "gpus", .rank = rank, .size = 2};
  gpus.backend = mw::backend_kind::nccl;
  gpus.device = rank;
  rt.run(mw::keep(rt, store, gpus, add_up));
}
