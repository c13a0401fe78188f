// The program of README.md: one member of a world of two, kept alive.
#include <manyworlds/manyworlds.hpp>
using namespace std::chrono_literals;

mw::task<void> edge(mw::world& w) {  // one edge of a pipeline
  std::vector<float> x(1 << 20);
  for (;;) {
    co_await w.recv(x, mw::from{1});  // a dead peer ends this coroutine, no other
    co_await w.send(x, mw::to{1}).within(2s);  // giving up leaves the world up
  }
}

int main() {
  mw::runtime rt;
  mw::tcp_store store(rt, "127.0.0.1:29500");
  rt.run(mw::keep(rt, store, {.name = "left", .rank = 0, .size = 2}, edge));
}  // breaks: back off, next epoch, run again
