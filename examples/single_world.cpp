// The control: one world of three, one process per terminal. Kill any of them and all
// end: several worlds avoid this. Rank 0 receives and hosts the store. single_world
// --rank 0;  ... --rank 1;  ... --rank 2. Or by a launcher: mpirun -n 3 single_world
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <manyworlds/launch.hpp>
#include <manyworlds/mw.hpp>
#include <stdexcept>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

mw::task<void> receive_in_turn(mw::world& w) {
  std::vector<float> tensor(1);
  for (mw::rank_t rank = 1;; rank = rank % (w.size() - 1) + 1) {
    co_await w.recv(tensor, mw::from{rank});
    fmt::print("received tensor([{}]) from rank {}\n", tensor[0], rank);
  }
}

mw::task<void> send(mw::world& w) {
  const std::vector<float> tensor(1, static_cast<float>(w.rank()));
  for (;;) {
    co_await w.send(tensor, mw::to{0});
    fmt::print("sent tensor([{}]) to rank 0\n", tensor[0]);
    co_await mw::sleep_for(1s);
  }
}

mw::task<void> take_part(mw::runtime& rt, mw::store& store, mw::rank_t rank,
                         mw::rank_t size) {
  mw::world w(rt, store, {.name = "world", .rank = rank, .size = size});
  fmt::print("joining the world as rank {}, through the store at {}\n", w.rank(),
             store.address());
  co_await w;
  fmt::print("joined the world as rank {} of {}\n", w.rank(), w.size());
  // Only rank 0 talks to all others, but the end of one is told to all.
  if (rank == 0)
    co_await receive_in_turn(w);
  else
    co_await send(w);
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Three processes in one world.");
  std::string address = "127.0.0.1";
  int port = 29500;
  mw::rank_t rank = 0, size = 3;
  app.add_option("--addr", address, "where rank 0 hosts the store")
      ->capture_default_str();
  app.add_option("--port", port, "its port")->capture_default_str();
  const auto* said = app.add_option(
      "--rank", rank, "0 receives, the others send; without it a launcher says all");
  app.add_option("--worldsize", size, "number of processes")
      ->capture_default_str()
      ->check(CLI::Range(2, 64));
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);

  mw::launch_context job;
  if (said->count() == 0) {
    job = mw::launch_context::from_environment();
    if (job.size < 2) throw std::runtime_error("give --rank, or start it by a launcher");
  } else {
    job.launcher = mw::launcher_kind::by_hand;
    job.rank = job.local_rank = rank;
    job.size = job.local_size = size;
    job.place = mw::store_place::rank_zero;
    job.store = fmt::format("{}:{}", address, port);
  }
  mw::runtime_options options = job.runtime();
  options.log_from = mw::log_level::silent;
  mw::runtime rt(options);
  rt.serve_dumps();  // for mwstat
  mw::launch_store store(rt, job);
  return job.run(rt, take_part(rt, store, job.rank, job.size));
} catch (const std::exception& e) {
  fmt::print(stderr, "single_world: caught an error: {}\n", e.what());
  return 1;
}
