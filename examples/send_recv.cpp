// Two worlds of two: a killed sender breaks only its world, and joins again after a
// restart. Alone it starts both senders and kills one. By hand, one process per
// terminal: send_recv --worldinfo 1,0 --worldinfo 2,0;  send_recv --worldinfo 1,1;  ...
// 2,1. Or by a launcher: mpirun -n 3 send_recv
#include "shared/tensor.hpp"
#include "shared/terminal.hpp"

namespace {

class member {
 public:
  member(mw::runtime& rt, const arguments& given, double pause)
      : runtime_(rt),
        given_(given),
        stores_(rt, given),
        memory_(given.on_gpus() ? given.device : -1),
        pause_(pause) {}

  mw::task<void> run() {
    const auto all = [this](mw::scope& s) -> mw::task<void> {
      for (const membership& m : given_.worlds) s.spawn(take_part(m));
      co_return;
    };
    co_await mw::scope::run(all);
  }

  /// Receives from a world until it has, so often since it was formed the n-th time.
  mw::task<void> has_received(int world, std::uint64_t epoch, int count) {
    const received& r = received_[world];
    while (r.epoch < epoch || r.count < count) co_await mw::sleep_for(1ms);
  }

 private:
  struct received {
    std::uint64_t epoch = 0;
    int count = 0;
  };

  /// Keeps one world, which forms again whenever it breaks. Its failure concerns only
  /// this coroutine.
  mw::task<void> take_part(membership m) {
    const auto body = [this, &m](mw::world& w) {
      return m.rank == 0 ? receive(w, received_[m.world]) : send(w);
    };
    mw::task<void> kept = mw::keep(runtime_, stores_.of(m), given_.world(m, 2),
                                   telling(given_, fmt::format("rank {}", m.rank), body));
    co_await std::move(kept);
  }

  mw::task<void> receive(mw::world& w, received& r) const {
    tensor x(1, memory_);
    r = {w.epoch(), 0};
    for (;;) {
      co_await x.recv(w, mw::from{1});
      ++r.count;
      fmt::print("received tensor([{}]) from rank 1 in {}\n", x.values()[0],
                 w.name().view());
    }
  }

  mw::task<void> send(mw::world& w) const {
    tensor x(1, memory_);
    x.values()[0] = 1;
    for (;;) {
      co_await x.send(w, mw::to{0});
      if (given_.parent == 0)
        fmt::print("sent tensor([{}]) to rank 0 in {}\n", x.values()[0], w.name().view());
      co_await mw::sleep_for(seconds(pause_));
    }
  }

  mw::runtime& runtime_;
  const arguments& given_;
  stores stores_;
  const tensor_memory memory_;
  const double pause_;
  std::map<int, received> received_;
};

/// This process is rank 0 of both worlds, and starts the two senders.
void start_all(mw::runtime& rt, arguments& given) {
  const mw::hosted_store host(rt, "127.0.0.1:0");
  given.store = host.address();
  given.worlds = {{1, 0}, {2, 0}};
  const auto sender = [&](const char* who) {
    process p = given.start({"--worldinfo", who, "--pause", "0.2"}, who[0] - '0', 3);
    fmt::print("the sender of world{} is pid {}\n", who[0], p.pid());
    return p;
  };
  process first = sender("1,1"), second = sender("2,1");
  member leader(rt, given, 0);
  const auto script = [&]() -> mw::task<void> {
    co_await leader.has_received(1, 1, 3);
    co_await leader.has_received(2, 1, 3);
    fmt::print("kill -9 {}\n", first.pid());
    first.signal(SIGKILL);
    (void)first.join();
    co_await leader.has_received(2, 1, 6);
    first = sender("1,1");
    co_await leader.has_received(1, 2, 3);
  };
  const auto both = [&]() -> mw::task<void> {
    (void)co_await mw::when_any(leader.run(), script());
  };
  rt.run(both());
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Tensors from a sender in each of two worlds.");
  arguments given(app);
  double pause = 1;
  app.add_option("--pause", pause, "seconds between two tensors")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  given.ask_launcher({{{1, 0}, {2, 0}}, {{1, 1}}, {{2, 1}}});

  mw::runtime rt(given.runtime());
  rt.serve_dumps();  // for mwstat
  if (given.worlds.empty()) {
    start_all(rt, given);
  } else {
    rt.run(member(rt, given, pause).run());
  }
} catch (const std::exception& e) {
  fmt::print(stderr, "send_recv: {}\n", e.what());
  return 1;
}
