// Host worlds and GPU worlds of one process: each fails by itself.
#include <vector>

#include "gpu_worlds.hpp"

using namespace manyworlds;
using namespace manyworlds::nccl_tests;

namespace {

/// One world in host memory and one on GPUs, of the same members.
struct both_kinds {
  both_kinds(member& m, const world_options& of_gpus)
      : gpus(m.rt, m.st, of_gpus), host(m.rt, m.st, on_host(of_gpus)) {}

  [[nodiscard]] world& of(backend_kind kind) {
    return kind == backend_kind::nccl ? gpus : host;
  }

  world gpus;
  world host;

 private:
  static world_options on_host(world_options options) {
    options.name = "in host memory";
    options.backend = backend_kind::host;
    options.device = -1;
    return options;
  }
};

/// Sums of ones among two, in the memory that the world is for.
task<void> add_up(member& m, world& w, backend_kind kind) {
  constexpr std::size_t count = 1000;
  const std::vector<float> twos(count, 2);
  std::vector<float> x(count, 1);
  if (kind == backend_kind::host) {
    co_await w.all_reduce(x, sum);
    CHECK(x == twos);
    co_return;
  }
  auto there = co_await m.on_device(x);
  co_await w.all_reduce(there, sum);
  CHECK((co_await m.read(there)) == twos);
}

task<void> check_break(member& m, both_kinds& worlds, backend_kind breaks) {
  const backend_kind stays =
      breaks == backend_kind::nccl ? backend_kind::host : backend_kind::nccl;
  world& broken = worlds.of(breaks);
  world& healthy = worlds.of(stays);
  // Both are done with what was before in the one that breaks.
  co_await healthy.barrier();
  // The other waits in an operation that never comes.
  const auto waits = [&]() -> task<void> {
    if (m.rank == 0) {
      int word = 0;
      const auto end = co_await outcome(broken.recv(std::span(&word, 1), from(1)));
      CHECK(end.error().cause == cause::broken_by_user);
      CHECK(end.error().rank == 1);
    } else {
      broken.fail("the test wants it so");
    }
  };
  const auto works = [&]() -> task<void> {
    for (int i = 0; i < 20; ++i) co_await add_up(m, healthy, stays);
  };
  co_await when_all(waits(), works());
  CHECK(healthy.state() == world_state::up);
  broken = co_await broken.reform();
  CHECK(broken.epoch() == 2);
  co_await add_up(m, broken, breaks);
}

}  // namespace

TEST_SUITE("gpu worlds") {
  TEST_CASE(
      "B18: of a host world and a GPU world in one process either breaks alone, and is "
      "formed again beside the other") {
    NEEDS_DEVICES(2);
    run_members(2, [](member& m, world_options options) -> task<void> {
      both_kinds worlds(m, options);
      co_await worlds.gpus;
      co_await worlds.host;
      // NCCL's own thread for those who meet stays until all have come.
      co_await worlds.gpus.device_ready();
      co_await check_break(m, worlds, backend_kind::nccl);
      co_await check_break(m, worlds, backend_kind::host);
      co_await worlds.host.leave();
      co_await worlds.gpus.leave();
    });
  }
}
