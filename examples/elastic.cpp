// Workers that outlive each other. Each pair of ranks is a world, in which steps go there
// and back; when a worker dies, or stops, only its worlds break, and its replacement
// forms them anew. As a worker, under mwrun or torchrun:
//
//     mwrun --standalone --nproc-per-node 4 --restart-scope worker --max-restarts 10
//         --hang-timeout 2 --no-python elastic
//
// Without a launcher it is the launcher: it starts four workers, kills one and stops one.
// With --json it prints one object, and nothing else.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <manyworlds/launch.hpp>
#include <manyworlds/mw.hpp>

#include "elastic/edge.hpp"
#include "elastic/show.hpp"

namespace {

/// Keeps a world of two with every other rank, until the runtime stops.
mw::task<void> keep_all(mw::runtime& rt, mw::store& store, std::vector<edge>& edges) {
  const auto all = [&](mw::scope& s) -> mw::task<void> {
    for (edge& each : edges) {
      const auto body = [&rt, &each](mw::world& w) { return each.use(rt, w); };
      // One that ends in order is replaced as one that dies is.
      s.spawn(mw::keep(rt, store, each.options(), body, mw::after_close::form_again));
    }
    if (edges.empty()) co_await mw::stop_on(mw::sleep_for(24h), rt.draining());
  };
  co_await mw::scope::run(all);
}

mw::task<void> tell_each_second(const mw::launch_context& job,
                                const std::vector<edge>& edges) {
  for (;;) {
    co_await mw::sleep_for(1s);
    fmt::print("{}\n", text_of(job.rank, edges));
  }
}

mw::task<void> work(mw::runtime& rt, mw::store& store, const mw::launch_context& job) {
  std::vector<edge> edges;
  for (mw::rank_t peer = 0; peer < job.size; ++peer)
    if (peer != job.rank) edges.emplace_back(job, peer);
  co_await mw::when_any(keep_all(rt, store, edges), tell_each_second(job, edges));
}

int run_worker(const mw::launch_context& job) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  mw::runtime_options options = job.runtime();
  options.log_from = mw::log_level::error;  // the edges tell what breaks
  mw::runtime rt(options);
  mw::launch_store store(rt, job);
  return job.run(rt, work(rt, store, job), {.drain = 2s});
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Workers of which each may be replaced while the others go on.");
  show_wishes w;
  app.add_option("--workers", w.workers, "of the show")
      ->capture_default_str()
      ->check(CLI::Range(2, 16));
  app.add_option("--hang-timeout", w.hang_timeout_s,
                 "seconds after which a worker that is stopped is replaced")
      ->capture_default_str()
      ->check(CLI::Range(0.5, 60.0));
  app.add_flag("--json", w.json, "print one object and nothing else");
  CLI11_PARSE(app, argc, argv);
  try {
    const auto job = mw::launch_context::from_environment();
    return job.launcher == mw::launcher_kind::none ? run_show(w) : run_worker(job);
  } catch (const std::exception& e) {
    fmt::print(stderr, "elastic: {}\n", e.what());
    return 1;
  }
}
