// Processes that are shut down in order. SIGTERM or SIGINT ends one with 0 as soon as
// what it had begun has ended; a second signal ends it at once.
// examples/shutting_down.md describes the order.
//
//     shut_down leader 127.0.0.1:29500      hosts the store, and asks ten times a second
//     shut_down worker 127.0.0.1:29500      any number, in other terminals: kill PID
#include <csignal>
#include <cstdio>
#include <exception>
#include <manyworlds/mw.hpp>
#include <optional>
#include <string_view>
using namespace std::chrono_literals;

namespace {

constexpr auto drain = 30s;

/// The first signal begins the drain, a second one ends it.
mw::task<void> stop_when_told(mw::runtime& rt, mw::task<mw::received_signal> told) {
  const mw::received_signal first = co_await std::move(told);
  std::printf("%s: draining\n", first.text().c_str());
  std::fflush(stdout);
  rt.stop(drain);
  co_await mw::until_signal({SIGTERM, SIGINT});
  rt.stop();
}

mw::task<void> answer(mw::served_call& call) {
  for (std::string_view token : {"many ", "worlds"}) {
    co_await mw::sleep_for(20ms);  // the work
    co_await call.reply(token);
  }
}

/// Ends when the runtime stops and nothing is open.
mw::task<void> work(mw::runtime& rt, mw::store& store) {
  mw::call_server server(answer);
  const auto serve = [&](mw::world& w) { return server.serve(w); };
  co_await mw::connect(rt, store, {.service = "decode"}, serve);
}

mw::task<void> ask_until_stopped(mw::runtime& rt, mw::dispatcher& workers) {
  int answered = 0;
  int broken = 0;
  while (!rt.is_stopping()) {
    try {
      auto tokens = co_await workers.call(std::string_view("a prompt")).within(30s);
      while (auto token = co_await tokens.next()) continue;
      std::printf("answered %d\n", ++answered);
    } catch (const std::exception& e) {
      std::printf("broken %d: %s\n", ++broken, e.what());
    }
    std::fflush(stdout);
    co_await mw::sleep_for(100ms);
  }
  for (const auto& each : workers.workers()) co_await workers.drain(each.id);
}

mw::task<void> lead(mw::runtime& rt, mw::store& store) {
  mw::dispatcher workers;
  const auto serve = [&](mw::world& w) { return workers.serve(w); };
  co_await mw::when_all(mw::accept(rt, store, {.service = "decode"}, serve),
                        ask_until_stopped(rt, workers));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "shut_down leader|worker ADDRESS\n");
    return 2;
  }
  const bool leads = std::string_view(argv[1]) == "leader";
  // Do this first: a thread that is started before would be ended by the signal.
  auto told = mw::until_signal({SIGTERM, SIGINT});
  mw::runtime rt;
  std::optional<mw::hosted_store> host;
  if (leads) host.emplace(rt, argv[2]);
  mw::tcp_store store(rt, argv[2]);
  // Keep the handle: its exception is logged, and it is cancelled with the runtime.
  const auto stopping = rt.start(stop_when_told(rt, std::move(told)));
  rt.start(leads ? lead(rt, store) : work(rt, store)).get();
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "shut_down: %s\n", e.what());
  return 1;
}
