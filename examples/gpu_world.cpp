// The GPU world of src/nccl/using.md: a member on each GPU of the job, as any launcher
// starts it. torchrun --no-python --nproc-per-node 2 gpu_world, or by hand: RANK=0
// WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500 gpu_world;  RANK=1 ... gpu_world
#include <manyworlds/gpu.hpp>
#include <manyworlds/launch.hpp>
#include <manyworlds/mw.hpp>

int main() {
  const auto job = mw::launch_context::from_environment();
  mw::runtime rt(job.runtime());
  mw::launch_store store(rt, job);
  const int device = job.device();  // of the local rank
  const mw::device_pool pool(device);
  const mw::owned_stream stream(device);
  const auto add_up = [&](mw::world& w) -> mw::task<void> {
    mw::device_buffer<float> x(pool, 1 << 20, stream);  // your kernels fill it, there
    co_await w.all_reduce(x, mw::sum);  // begins after them; ends when x has the sums
  };
  mw::world_options gpus = job.world("gpus");
  gpus.backend = mw::backend_kind::nccl;
  gpus.device = device;
  return job.run(rt, mw::keep(rt, store, gpus, add_up));
}
