// The program of README.md: one member of a world of two, kept alive.
#include <cstdio>
#include <cstdlib>
#include <manyworlds/mw.hpp>
#include <optional>
using namespace std::chrono_literals;

mw::task<void> edge(mw::world& w) {  // one edge of a pipeline: 4 MiB there and back
  const int peer = 1 - w.rank();
  std::vector<float> x(1 << 20);
  if (w.rank() == 0) co_await w.send(x, mw::to{peer});
  for (int round = 1;; ++round) {
    co_await w.recv(x, mw::from{peer});  // a dead peer ends this coroutine, no other
    std::printf("rank %d: round %d\n", w.rank(), round);
    co_await mw::sleep_for(500ms);
    co_await w.send(x, mw::to{peer}).within(10s);  // giving up leaves the world up
  }
}

int main(int count, char** words) {
  const int rank = count > 1 ? std::atoi(words[1]) : 0;
  mw::runtime rt;
  std::optional<mw::hosted_store> host;  // where the members find each other
  if (rank == 0) host.emplace(rt, "127.0.0.1:29500");
  mw::tcp_store store(rt, "127.0.0.1:29500");
  rt.run(mw::keep(rt, store, {.name = "left", .rank = rank, .size = 2}, edge));
}  // breaks: back off, next epoch, run again
