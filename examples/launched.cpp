// The program of examples/starting.md, which any launcher starts. `mpirun -n 4 launched`,
// `srun -n 4 launched`, `torchrun --no-python --nproc-per-node 4 launched`, or by hand,
// one process per terminal: RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500
// launched; RANK=1 ... launched. Started as it is, it is alone.
#include <cstdio>
#include <manyworlds/launch.hpp>
#include <manyworlds/mw.hpp>
#include <vector>

mw::task<void> body(mw::world& w) {
  std::vector<float> x(1 << 10, static_cast<float>(w.rank() + 1));
  co_await w.all_reduce(x, mw::sum);
  std::printf("rank %d of %d: the sum of all ranks + 1 is %g\n", w.rank(), w.size(),
              x[0]);
}

// The same under torchrun, srun, mpirun, mpiexec, or by hand.
int main() {
  // Or launch_error, which names the variable.
  const auto job = mw::launch_context::from_environment();
  mw::runtime rt(job.runtime());    // address, secret, CPU
  mw::launch_store store(rt, job);  // rank 0 hosts it where no launcher does
  // Writes the error file, gives the exit code, heeds SIGTERM.
  return job.run(rt, mw::keep(rt, store, job.world("main"), body));
}
