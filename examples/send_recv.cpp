// Two worlds, one process per terminal. A killed sender breaks only its world; the
// leader, which also hosts the store, goes on with the other. Start it again: it joins
// again. send_recv --worldinfo 1,0 --worldinfo 2,0;  ... --worldinfo 1,1;  ...
// --worldinfo 2,1
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <manyworlds/manyworlds.hpp>
#include <optional>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

struct membership {
  int world = 0;
  mw::rank_t rank = 0;
};

membership parse(const std::string& text) {
  membership m;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%d,%d%c", &m.world, &m.rank, &rest) != 2) {
    throw std::invalid_argument("--worldinfo " + text +
                                ": expected WORLD,RANK, for instance 1,0");
  }
  return m;
}

mw::task<void> receive(mw::world& w) {
  std::vector<float> tensor(1);
  for (;;) {
    co_await w.recv(tensor, mw::from{1});
    fmt::print("received tensor([{}]) from rank 1 in {}\n", tensor[0], w.name().view());
  }
}

mw::task<void> send(mw::world& w) {
  const std::vector<float> tensor(1, 1.0f);
  for (;;) {
    co_await w.send(tensor, mw::to{0});
    fmt::print("sent tensor([{}]) to rank 0 in {}\n", tensor[0], w.name().view());
    co_await mw::sleep_for(1s);
  }
}

/// One world, formed again whenever it breaks. Its failure is this coroutine's business
/// and nobody else's.
mw::task<void> take_part(mw::runtime& rt, mw::store& store, membership m) {
  auto life = [](mw::world& w) -> mw::task<void> {
    fmt::print("joined {}@{} as rank {}\n", w.name().view(), w.epoch(), w.rank());
    try {
      if (w.rank() == 0)
        co_await receive(w);
      else
        co_await send(w);
    } catch (const mw::world_error& e) {
      fmt::print("caught an error: {}\n", e.what());
      throw;
    }
  };
  const auto name = fmt::format("world{}", m.world);
  fmt::print("joining {} as rank {}, through the store at {}\n", name, m.rank,
             store.address());
  co_await mw::keep(rt, store, {.name = name, .rank = m.rank, .size = 2}, life);
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Tensors from a sender in each of two worlds.");
  std::string address = "127.0.0.1", store_address, backend = "host";
  int port = 29500;
  std::vector<std::string> worlds;
  app.add_option("--addr", address, "where the leader hosts the store")
      ->capture_default_str();
  app.add_option("--port", port, "its port")->capture_default_str();
  app.add_option("--store", store_address,
                 "HOST:PORT of a store that runs already: host none");
  app.add_option("--worldinfo", worlds, "WORLD,RANK; rank 0 receives; may be given twice")
      ->required()
      ->allow_extra_args(false);
  app.add_option("--backend", backend, "what moves the data")
      ->check(CLI::IsMember({"host"}));
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);

  std::vector<membership> memberships;
  for (const std::string& text : worlds) memberships.push_back(parse(text));

  mw::runtime rt({.log_from = mw::log_level::silent});
  rt.serve_dumps();  // for mwstat
  std::optional<mw::hosted_store> host;
  if (store_address.empty()) {
    store_address = fmt::format("{}:{}", address, port);
    if (memberships.front().rank == 0) host.emplace(rt, store_address);
  }
  mw::tcp_store store(rt, store_address);
  auto all = [&](mw::scope& s) -> mw::task<void> {
    for (const membership m : memberships) s.spawn(take_part(rt, store, m));
    co_return;
  };
  auto leader = [&]() -> mw::task<void> { co_await mw::scope::run(all); };
  rt.run(leader());
} catch (const std::exception& e) {
  fmt::print(stderr, "send_recv: {}\n", e.what());
  return 1;
}
