// A worker of ours that a launcher starts, for peers/launch.py: it is in a world with
// each other worker, forms it again when it broke, and tells each that is up by one line.
#include <fmt/format.h>
#include <unistd.h>

#include <manyworlds/launch.hpp>
#include <span>
#include <string>

#include "timing.hpp"

namespace {

namespace mw = manyworlds;

mw::task<void> be_in(mw::world& w) {
  co_await w.barrier();
  const std::string line =
      fmt::format("up {} {} {}\n", w.name().view(), ::getpid(), mwbench::now_ns());
  [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, line.data(), line.size());
  // Until the other one is gone.
  int never = 0;
  co_await w.recv(std::span(&never, 1), mw::from{1 - w.rank()});
}

mw::task<void> be_in_all(mw::runtime& rt, mw::store& store,
                         const mw::launch_context& job) {
  co_await mw::scope::run([&](mw::scope& s) -> mw::task<void> {
    for (int other = 0; other < job.size; ++other) {
      if (other == job.rank) continue;
      mw::world_options pair = job.world(
          fmt::format("{}-{}", std::min(other, job.rank), std::max(other, job.rank)));
      pair.rank = job.rank < other ? 0 : 1;
      pair.size = 2;
      s.spawn(mw::keep(rt, store, pair, be_in));
    }
    co_return;
  });
}

}  // namespace

int main() {
  const auto job = mw::launch_context::from_environment();
  mw::runtime rt(job.runtime());
  mw::launch_store store(rt, job);
  return job.run(rt, be_in_all(rt, store, job));
}
