// A program over the transports that src/EXTENDING.md shows.
#include "late_backend.hpp"
#include "toy_backend.hpp"

#include <chrono>
#include <cstdio>

#include "manyworlds/mw.hpp"

using namespace std::chrono_literals;

mw::task<void> member(mw::runtime& rt, mw::store& store, int rank) {
  mw::world w(rt, store, {.name = "own", .rank = rank, .size = 2, .form = 10s});
  co_await w;
  int word = 42;
  if (rank == 0) {
    co_await w.send(mw::object(word), mw::to{1});
  } else {
    word = 0;
    co_await w.recv(mw::object(word), mw::from{0});
    std::printf("%d came, over %s\n", word, w.transport().c_str());
  }
  co_await w.leave();
}

void try_out(mw::detail::backend_factory& transport) {
  mw::memory_store store;
  mw::runtime first({.shared_memory = false, .backends = &transport});
  mw::runtime second({.shared_memory = false, .backends = &transport});
  auto sends = first.start(member(first, store, 0));
  auto receives = second.start(member(second, store, 1));
  sends.get();
  receives.get();
}

int main() {
  mw::detail::late_exchange late(20ms);
  mw::detail::toy_exchange toy;
  try_out(late);
  try_out(toy);
  std::printf("%d bytes were late\n", static_cast<int>(late.bytes()));
}
