// Every call that examples/coming_from.md puts beside one of torch.distributed or of
// MultiWorld, run once by each of two members in this process. tests/checks/readme.py
// holds the page to it.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <manyworlds/mw.hpp>
#include <stop_token>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

struct head {
  std::uint64_t id;
};

mw::task<void> point_to_point(mw::world& w) {
  std::vector<float> x(8), y(8);
  const std::stop_source gone;
  const std::stop_token token = gone.get_token();
  if (w.rank() == 0) {
    co_await w.send(x, mw::to{1});
    co_await w.send(x, mw::to{1}, mw::lane{7});
    co_await w.send_message(head{1}, x, mw::to{1});
    co_await w.send(x, mw::to{1}).delivered();
    co_await w.recv(x, mw::from{1}).within(5s);
    co_await w.recv(x, mw::from{1}).stop(token);
    co_await mw::when_all(w.send(x, mw::to{1}), w.recv(y, mw::from{1}));
    co_await w.group(w.send(x, mw::to{1}), w.recv(y, mw::from{1}));
  } else {
    // As a framework would describe its memory.
    std::int64_t shape = 8;
    mw::dlpack::tensor tensor{.data = x.data(),
                              .device = {.device_type = 1, .device_id = 0},
                              .ndim = 1,
                              .dtype = {.code = 2, .bits = 32, .lanes = 1},
                              .shape = &shape,
                              .strides = nullptr,
                              .byte_offset = 0};
    co_await w.recv(mw::dlpack::writable(tensor), mw::from{0});
    co_await w.recv(x, mw::from{0}, mw::lane{7});
    const auto m = co_await w.recv_message<head>(mw::from{0});
    if (m.info.has_payload) co_await w.recv(x, mw::from{0});
    co_await w.recv(x, mw::from{mw::any});
    co_await w.send(x, mw::to{0});
    co_await w.send(x, mw::to{0});
    for (int i = 0; i < 2; ++i) {
      co_await mw::scope::run([&](mw::scope& s) -> mw::task<void> {
        s.spawn(w.send(x, mw::to{0}));
        co_await w.recv(y, mw::from{0});
      });
    }
  }
}

mw::task<void> collectives(mw::world& w) {
  const auto size = static_cast<std::size_t>(w.size());
  std::vector<float> x(8), all(8 * size), other(8 * size);
  const std::vector<std::size_t> in_counts(size, 8), out_counts(size, 8);
  co_await w.barrier();
  co_await w.broadcast(x, mw::root{0});
  co_await w.all_reduce(x, mw::sum);
  co_await w.reduce(x, mw::sum, mw::root{0});
  co_await w.all_gather(x, all);
  co_await w.gather(x, all, mw::root{0});
  co_await w.scatter(all, x, mw::root{0});
  co_await w.reduce_scatter(all, x, mw::sum);
  co_await w.all_to_all(all, other);
  co_await w.all_to_all_v(all, in_counts, other, out_counts);
  for (const mw::reduction by : {mw::prod, mw::max, mw::min, mw::avg})
    co_await w.all_reduce(x, by);
}

/// Both members have formed the world when this ends. The other may break it already.
mw::task<void> meet(mw::world& w) { (void)co_await mw::outcome(w.barrier()); }

mw::task<void> life(mw::world& w, mw::runtime& rt, mw::store& store) {
  mw::world_manager worlds(rt, store);
  auto events = worlds.events();
  co_await worlds.form({.name = "right", .rank = w.rank(), .size = 2});
  if (worlds["right"].state() != mw::world_state::up) throw std::logic_error("not up");
  if (!worlds.find("right") || worlds.list().size() != 1 || w.is_suspect(1 - w.rank()))
    throw std::logic_error("not listed");
  while ((co_await events.next()).kind != mw::world_event_kind::formed) continue;

  // One breaks it, both see it broken, and both form its next epoch.
  co_await meet(worlds["right"]);
  if (w.rank() == 0) worlds["right"].fail("enough");
  const auto sent = co_await mw::outcome(worlds["right"].barrier());
  if (sent || sent.error().cause != mw::cause::broken_by_user)
    throw std::logic_error("not broken");
  co_await worlds.reform("right");
  co_await meet(worlds["right"]);
  auto smaller = co_await worlds["right"].shrink();
  co_await meet(smaller);
  auto grown = co_await smaller.grow();
  co_await meet(grown);
  auto again = co_await grown.reform();
  try {
    const std::vector<float> x(8);
    co_await again.send(x, mw::to{2});
  } catch (const mw::world_error& e) {
    if (e.cause() != mw::cause::invalid_argument || e.failure().rank != 2) throw;
  }
  co_await again.leave();
  co_await worlds.remove("right");
  co_await worlds.remove_all();
}

mw::task<void> member(mw::runtime& rt, mw::store& store, int rank) {
  mw::prefix_store mine("job", store);
  co_await mine.set("rank" + std::to_string(rank), "here");
  co_await mine.wait({"rank0", "rank1"}, 5s);
  if (co_await mine.get("rank0", 5s) != "here") throw std::logic_error("no value");
  (void)co_await mine.add("count", 1);
  (void)co_await mine.compare_set("chosen", "", std::to_string(rank));

  mw::world w(rt, store, {.name = "left", .rank = rank, .size = 2, .form = 10s});
  co_await w;
  co_await point_to_point(w);
  co_await collectives(w);
  co_await life(w, rt, mine);
  co_await w.leave();
}

mw::task<void> kept(mw::world& w) { co_await w.barrier(); }

mw::task<void> both(mw::runtime& rt, mw::store& store, int rank) {
  co_await member(rt, store, rank);
  mw::world_options options{.name = "left", .rank = rank, .size = 2};
  options.backend = mw::backend_kind::host;  // or mw::backend_kind::nccl
  options.suspect_after = 1s;
  options.broken_after = 5s;
  options.collective_break = 60s;
  co_await mw::keep(rt, store, options, kept);
}

}  // namespace

int main() try {
  mw::runtime rt, other;
  mw::hosted_store host(rt, "127.0.0.1:0");
  mw::tcp_store store(rt, host.address()), theirs(other, host.address());
  auto first = rt.start(both(rt, store, 0));
  auto second = other.start(both(other, theirs, 1));
  if (!first.wait_for(30s) || !second.wait_for(30s)) {
    std::printf("not over after 30 s\n%s\n", rt.dump().c_str());
    std::fflush(stdout);
    std::_Exit(1);  // The tasks still use the stores.
  }
  first.get();
  second.get();
  rt.stop(30s);
  return 0;
} catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
