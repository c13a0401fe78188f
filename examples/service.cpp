// The service of README.md. Start `service worker` in any number of processes at any
// time. `service` asks one question and then drains all workers.
#include <cstdio>
#include <manyworlds/mw.hpp>
#include <stop_token>
#include <string_view>
using namespace std::chrono_literals;

mw::task<void> work(mw::runtime& rt, mw::store& store) {  // any number of processes
  mw::call_server server([](mw::served_call& call) -> mw::task<void> {
    for (std::string_view token : {"many ", "worlds\n"}) co_await call.reply(token);
  });
  const auto serve = [&](mw::world& w) { return server.serve(w); };
  co_await mw::connect(rt, store, {.service = "decode"}, serve);
}

mw::task<void> lead(mw::runtime& rt, mw::store& store) {
  mw::dispatcher workers;
  std::stop_source closing;
  const auto ask = [&]() -> mw::task<void> {
    auto tokens = co_await workers.call(std::string_view("a prompt")).within(30s);
    while (auto token = co_await tokens.next())
      std::fwrite(token->data(), 1, token->size(), stdout);
    closing.request_stop();
    for (const auto& each : workers.workers()) co_await workers.drain(each.id);
  };
  const auto serve = [&](mw::world& w) { return workers.serve(w); };
  co_await mw::when_all(
      mw::accept(rt, store, {.service = "decode"}, serve, closing.get_token()), ask());
}

int main(int argc, char**) {
  mw::runtime rt;
  if (argc > 1) {
    mw::tcp_store store(rt, "127.0.0.1:29500");
    rt.run(work(rt, store));
  } else {
    const mw::hosted_store host(rt, "127.0.0.1:29500");
    mw::tcp_store store(rt, host.address());
    rt.run(lead(rt, store));
  }
}
