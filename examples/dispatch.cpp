// Requests over workers that come and go, answered token by token. Alone it starts three
// workers, kills one that has requests, and starts another: what the dead one had begun
// goes on elsewhere, behind the tokens that came. By hand, in any order, any number:
// dispatch --role leader;  dispatch --role worker;  dispatch --role worker ...
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <optional>
#include <vector>

#include "dispatch/leader.hpp"
#include "shared/process.hpp"

namespace {

mw::task<void> generate(mw::served_call& call) {
  prompt p;
  if (call.data().size() != sizeof p) co_return;
  std::memcpy(&p, call.data().data(), sizeof p);
  for (std::uint64_t i = p.first; i < length(p.number); ++i) {
    co_await mw::sleep_for(2ms);  // computes
    const token t{model(p.number, i), getpid()};
    co_await call.reply(mw::object(t));
  }
}

mw::task<void> work(mw::runtime& rt, mw::store& store) {
  mw::call_server server(generate);
  const auto serve = [&](mw::world& w) { return server.serve(w); };
  auto connected = mw::connect(rt, store, {.service = service}, serve);
  co_await std::move(connected);
}

bool start_all(mw::runtime& rt) {
  const mw::hosted_store host(rt, "127.0.0.1:0");
  mw::tcp_store store(rt, host.address());
  const auto worker = [&] {
    return process({"--role", "worker", "--store", host.address()});
  };
  std::vector<process> workers;
  for (int i = 0; i < 3; ++i) workers.push_back(worker());
  leader l(rt, store);
  pid_t late = 0;
  const auto script = [&]() -> mw::task<void> {
    while (l.workers() < 3 || l.answered() < 60) co_await mw::sleep_for(1ms);
    fmt::print("kill -9 {}\n", workers[0].pid());
    workers[0].signal(SIGKILL);
    (void)workers[0].join();
    const auto before = l.answered();
    while (l.answered() < before + 30) co_await mw::sleep_for(1ms);
    workers[0] = worker();
    late = workers[0].pid();
    fmt::print("one more is started, pid {}\n", late);
    while (l.by(late) < 500) co_await mw::sleep_for(1ms);
    l.stop();
  };
  const auto both = [&]() -> mw::task<void> { co_await mw::when_all(l.run(), script()); };
  rt.run(both());
  bool is_right = l.tell();
  for (process& p : workers) {
    fmt::print("worker {}: {} tokens\n", p.pid(), l.by(p.pid()));
    const process::ending e = p.join();
    is_right = is_right && e.signal == 0 && e.status == 0;
  }
  return is_right;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("A leader, and workers that come and go.");
  std::string role = "all", address = "127.0.0.1:29500";
  pid_t parent = 0;
  app.add_option("--role", role)->check(CLI::IsMember({"leader", "worker"}));
  app.add_option("--store", address, "which the leader hosts")->capture_default_str();
  app.add_option("--parent", parent)->group("");
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (parent) end_with(parent);

  mw::runtime rt({.spin = mw::duration::zero(), .log_from = mw::log_level::silent});
  rt.serve_dumps();  // for mwstat
  if (role == "all") return start_all(rt) ? 0 : 1;
  std::optional<mw::hosted_store> host;
  if (role == "leader") host.emplace(rt, address);
  mw::tcp_store store(rt, address);
  if (role == "worker") {
    rt.run(work(rt, store));
  } else {
    leader l(rt, store);
    const auto both = [&]() -> mw::task<void> {
      co_await mw::when_all(l.run(), l.tell_each_second());
    };
    rt.run(both());
  }
} catch (const std::exception& e) {
  fmt::print(stderr, "dispatch: {}\n", e.what());
  return 1;
}
