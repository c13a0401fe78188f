// The program `hello` of README.md, changed as its readers change it: with captures,
// strings, temporaries, a configuration, two runtimes, a signal. Each variation is a
// world of two in this process, ends by itself, and says "ok". What must not compile is
// in tests/checks/refused.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <manyworlds/gpu.hpp>
#include <manyworlds/mw.hpp>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

struct config {
  std::string name;
  std::vector<float> weights;
};

mw::world_options member(const char* name, int rank) {
  return {.name = name, .rank = rank, .size = 2, .form = 20s};
}

/// What the other member does in all of them: gives back what it gets, once.
mw::task<void> echo(mw::world& w) {
  const auto next = co_await w.arrival(mw::from{0}).within(20s);
  std::vector<std::byte> bytes(next.bytes);
  co_await w.recv(bytes, mw::from{0}).within(20s);
  co_await w.send(bytes, mw::to{0}).within(20s).delivered();
}

// --- its body, as a function, with a lambda in it, with strings

mw::task<bool> exchange(mw::world& w, std::vector<float>& x) {
  const std::vector<float> sent = x;
  co_await w.send(x, mw::to{1}).within(20s);
  x.assign(x.size(), 0.0F);
  co_await w.recv(x, mw::from{1}).within(20s);
  co_return x == sent;
}

mw::task<bool> captured_by_reference(mw::runtime& rt, mw::store& st, config cfg) {
  bool same = false;
  co_await mw::keep(
      rt, st, member("by reference", 0),
      [&](mw::world& w) -> mw::task<void> { same = co_await exchange(w, cfg.weights); });
  co_return same;
}

mw::task<bool> captured_by_value(mw::runtime& rt, mw::store& st, config cfg) {
  auto same = std::make_shared<bool>(false);
  auto body = [cfg, same](mw::world& w) mutable -> mw::task<void> {
    *same = co_await exchange(w, cfg.weights);
  };
  co_await mw::keep(rt, st, member("by value", 0), body);
  co_return *same;
}

mw::task<bool> captured_and_moved(mw::runtime& rt, mw::store& st,
                                  std::unique_ptr<config> cfg) {
  bool same = false;
  mw::task<void> kept =
      mw::keep(rt, st, member("moved", 0),
               [cfg = std::move(cfg), &same](mw::world& w) -> mw::task<void> {
                 same = co_await exchange(w, cfg->weights);
               });
  co_await std::move(kept);
  co_return same;
}

mw::task<bool> bound(mw::runtime& rt, mw::store& st, config cfg) {
  bool same = false;
  co_await mw::keep(rt, st, member("bound", 0),
                    std::bind_front(
                        [](bool& result, config& mine, mw::world& w) -> mw::task<void> {
                          result = co_await exchange(w, mine.weights);
                        },
                        std::ref(same), std::move(cfg)));
  co_return same;
}

mw::task<bool> a_string(mw::runtime& rt, mw::store& st, std::string text) {
  bool same = false;
  auto body = [&](mw::world& w) -> mw::task<void> {
    const std::string sent = text + ", " + std::to_string(w.rank());
    co_await w.send(sent, mw::to{1}).within(20s);
    std::string got(sent.size(), ' ');
    co_await w.recv(got, mw::from{1}).within(20s);
    same = got == sent;
  };
  co_await mw::keep(rt, st, member("string", 0), body);
  co_return same;
}

mw::task<bool> several_in_a_scope(mw::runtime& rt, mw::store& st, config cfg) {
  int ended = 0;
  co_await mw::scope::run([&](mw::scope& s) -> mw::task<void> {
    for (const char* name : {"first", "second"}) {
      s.spawn(mw::keep(rt, st, member(name, 0),
                       [cfg, &ended](mw::world& w) mutable -> mw::task<void> {
                         ended += co_await exchange(w, cfg.weights);
                       }));
    }
    co_return;
  });
  co_return ended == 2;
}

mw::task<bool> without_keep(mw::runtime& rt, mw::store& st, config cfg) {
  mw::world w(rt, st, member("by hand", 0));
  co_await w;
  const bool same = co_await exchange(w, cfg.weights);
  co_await w.leave();
  co_return same&& w.state() != mw::world_state::broken;
}

mw::task<bool> a_world_that_moves(mw::runtime& rt, mw::store& st, config cfg) {
  mw::world w(rt, st, member("moves", 0));
  co_await w;
  mw::world mine = std::move(w);
  bool is_refused = false;
  try {
    co_await w.send(cfg.weights, mw::to{1});  // NOLINT(bugprone-use-after-move)
  } catch (const mw::world_error& e) {
    is_refused = e.cause() == mw::cause::invalid_argument;
  }
  const bool same = co_await exchange(mine, cfg.weights);
  co_await mine.leave();
  co_return is_refused&& same;
}

/// Runs one of them as rank 0, and rank 1 of its worlds in a runtime of its own.
template <class Variation>
bool try_out(const char* what, std::vector<const char*> worlds, Variation variation) {
  mw::memory_store store;
  mw::runtime ours;
  mw::runtime theirs;
  std::vector<mw::started<void>> others;
  for (const char* name : worlds)
    others.push_back(theirs.start(mw::keep(theirs, store, member(name, 1), echo)));
  mw::started<bool> tried = ours.start(variation(ours, store));
  bool ok = tried.wait_for(30s);
  if (!ok) std::printf("%s", ours.dump().c_str());
  ok = ok && tried.get();
  for (auto& each : others) ok = ok && each.wait_for(30s);
  std::printf("%s: %s\n", what, ok ? "ok" : "WRONG");
  return ok;
}

/// A program that is asked to end: a thread that waits for the signal stops the runtime.
bool a_signal() {
  sigset_t asked;
  sigemptyset(&asked);
  sigaddset(&asked, SIGTERM);
  // Before any thread is made: all of them have it blocked.
  pthread_sigmask(SIG_BLOCK, &asked, nullptr);
  mw::memory_store store;
  mw::runtime rt;
  std::thread waiting([&] {
    int which = 0;
    sigwait(&asked, &which);
    rt.stop();
  });
  kill(getpid(), SIGTERM);
  // No other member comes: without the signal it would wait for 20 s, and then try again.
  const auto begin = std::chrono::steady_clock::now();
  rt.run(mw::keep(rt, store, member("ended", 0), echo));
  waiting.join();
  const bool ok = std::chrono::steady_clock::now() - begin < 15s;
  std::printf("a signal: %s\n", ok ? "ok" : "WRONG");
  return ok;
}

bool try_all() {
  config cfg{"a name that is longer than a short string", std::vector<float>(1000)};
  std::iota(cfg.weights.begin(), cfg.weights.end(), 1.0F);
  bool ok = a_signal();
  ok &= try_out("captured by reference", {"by reference"},
                [&](auto& rt, auto& st) { return captured_by_reference(rt, st, cfg); });
  ok &= try_out("captured by value", {"by value"},
                [&](auto& rt, auto& st) { return captured_by_value(rt, st, cfg); });
  ok &= try_out("captured and moved", {"moved"}, [&](auto& rt, auto& st) {
    return captured_and_moved(rt, st, std::make_unique<config>(cfg));
  });
  ok &=
      try_out("bound", {"bound"}, [&](auto& rt, auto& st) { return bound(rt, st, cfg); });
  ok &= try_out("a string", {"string"},
                [&](auto& rt, auto& st) { return a_string(rt, st, cfg.name); });
  ok &= try_out("several in a scope", {"first", "second"},
                [&](auto& rt, auto& st) { return several_in_a_scope(rt, st, cfg); });
  ok &= try_out("without keep", {"by hand"},
                [&](auto& rt, auto& st) { return without_keep(rt, st, cfg); });
  ok &= try_out("a world that moves", {"moves"},
                [&](auto& rt, auto& st) { return a_world_that_moves(rt, st, cfg); });
  return ok;
}

}  // namespace

int main() try { return try_all() ? 0 : 1; } catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
