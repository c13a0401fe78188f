// Requests over workers that come and go, answered token by token. Alone it starts
// three workers, kills one that has requests, and starts another: the dead worker's
// answers continue at other workers, after the tokens that came. With --roll-out
// SECONDS one worker is told to end each second (SIGTERM) and another one started: no
// answer breaks, since a worker that drains ends those it has begun. By hand, in any
// order, any number: dispatch --role leader;  dispatch --role worker;  dispatch --role
// worker ...
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <manyworlds/gpu.hpp>

#include "dispatch/leader.hpp"
#include "shared/network.hpp"
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

/// On GPUs the tokens still lie in host memory: they travel over the same members.
mw::world_options worlds_of(const std::string& backend, int device) {
  mw::world_options options;
  if (backend != "nccl") return options;
  options.backend = mw::backend_kind::nccl;
  options.device = device;
  return options;
}

/// At SIGTERM the runtime gets time to end what is open; the call server drains then.
mw::task<void> stop_on(mw::runtime& rt, mw::task<mw::received_signal> signal) {
  (void)co_await std::move(signal);
  rt.stop(30s);
}

mw::task<void> work(mw::runtime& rt, mw::store& store, mw::world_options options,
                    mw::task<mw::received_signal> signal) {
  mw::call_server server(generate);
  const auto serve = [&](mw::world& w) { return server.serve(w); };
  const auto both = [&](mw::scope& s) -> mw::task<void> {
    s.spawn(stop_on(rt, std::move(signal)));
    auto connected =
        mw::connect(rt, store, {.service = service, .world = options}, serve);
    co_await std::move(connected);
    s.cancel();
  };
  co_await mw::scope::run(both);
}

/// Starts a worker on the next GPU. Where there are too few, two share one: NCCL
/// refuses this unless they seem to be of two hosts.
process start_worker(const network_arguments& network, const std::string& store,
                     const std::string& backend, int number) {
  const bool is_on_gpu = backend == "nccl";
  const int devices = is_on_gpu ? std::max(mw::device_count(), 1) : 1;
  std::vector<std::string> words{
      "--role",    "worker", "--store",  store,
      "--backend", backend,  "--device", std::to_string(number % devices)};
  network.hand_on(words);
  const std::string of_its_own = fmt::format("NCCL_HOSTID=worker{}", number);
  return process(words, is_on_gpu && devices == 1 ? of_its_own : "");
}

/// Hosts the store of a leader that starts its workers itself.
class office {
 public:
  office(mw::runtime& rt, const network_arguments& network, std::string backend)
      : network_(network),
        backend_(std::move(backend)),
        host_(rt, "127.0.0.1:0"),
        store_(rt, host_.address()) {}

  mw::store& store() noexcept { return store_; }
  mw::world_options worlds() const { return worlds_of(backend_, 0); }
  process worker() {
    return start_worker(network_, host_.address(), backend_, ++started_);
  }
  std::vector<process> three_workers() {
    std::vector<process> all;
    for (int i = 0; i < 3; ++i) all.push_back(worker());
    return all;
  }

 private:
  const network_arguments& network_;
  const std::string backend_;
  const mw::hosted_store host_;
  mw::tcp_store store_;
  int started_ = 0;
};

/// Runs three workers, of which one is replaced each second.
bool roll_out(mw::runtime& rt, const network_arguments& network,
              const std::string& backend, int seconds) {
  office here(rt, network, backend);
  std::vector<process> workers = here.three_workers();
  std::vector<process> leaving;
  leader l(rt, here.store(), here.worlds());
  const auto script = [&]() -> mw::task<void> {
    while (l.workers() < 3 || l.answered() < 60) co_await mw::sleep_for(1ms);
    for (int i = 0; i < seconds; ++i) {
      process& next = workers[static_cast<std::size_t>(i) % workers.size()];
      fmt::print("kill -TERM {}\n", next.pid());
      next.signal(SIGTERM);
      leaving.push_back(std::exchange(next, here.worker()));
      co_await mw::sleep_for(1s);
    }
    l.stop();
  };
  const auto both = [&]() -> mw::task<void> { co_await mw::when_all(l.run(), script()); };
  rt.run(both());
  bool is_right = l.tell() && l.continued() == 0;
  for (process& p : workers) leaving.push_back(std::move(p));
  for (process& p : leaving) {
    const process::ending e = p.join();
    is_right = is_right && e.signal == 0 && e.status == 0;
  }
  fmt::print("{} workers ended in order\n", leaving.size());
  return is_right;
}

bool start_all(mw::runtime& rt, const network_arguments& network,
               const std::string& backend) {
  office here(rt, network, backend);
  std::vector<process> workers = here.three_workers();
  leader l(rt, here.store(), here.worlds());
  pid_t late = 0;
  const auto script = [&]() -> mw::task<void> {
    while (l.workers() < 3 || l.answered() < 60) co_await mw::sleep_for(1ms);
    fmt::print("kill -9 {}\n", workers[0].pid());
    workers[0].signal(SIGKILL);
    (void)workers[0].join();
    const auto before = l.answered();
    while (l.answered() < before + 30) co_await mw::sleep_for(1ms);
    workers[0] = here.worker();
    late = workers[0].pid();
    fmt::print("started another worker, pid {}\n", late);
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
  std::string role = "all", address = "127.0.0.1:29500", backend = "host";
  pid_t parent = 0;
  int device = 0, rolled_out = 0;
  const network_arguments network(app);
  app.add_option("--role", role)->check(CLI::IsMember({"leader", "worker"}));
  app.add_option("--store", address, "address of the store, which the leader hosts")
      ->capture_default_str();
  app.add_option("--backend", backend, "backend of the worlds: nccl for GPUs")
      ->check(CLI::IsMember({"host", "nccl"}))
      ->capture_default_str();
  app.add_option("--device", device, "with nccl: this process's GPU")
      ->capture_default_str();
  app.add_option("--roll-out", rolled_out,
                 "seconds in which a worker is replaced each second")
      ->type_name("SECONDS");
  app.add_option("--parent", parent)->group("");
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (parent) end_with(parent);

  const mw::runtime_options quiet{.spin = mw::duration::zero(),
                                  .log_from = mw::log_level::silent};
  // Do this before any thread is started: threads inherit what is blocked.
  std::optional<mw::task<mw::received_signal>> signal;
  if (role == "worker") signal = mw::until_signal({SIGTERM});
  mw::runtime rt(network.apply(quiet, role == "all" ? "127.0.0.1" : address));
  rt.serve_dumps();  // for mwstat
  if (rolled_out > 0) return roll_out(rt, network, backend, rolled_out) ? 0 : 1;
  if (role == "all") return start_all(rt, network, backend) ? 0 : 1;
  std::optional<mw::hosted_store> host;
  if (role == "leader") host.emplace(rt, address, network.may_leave_loopback());
  mw::tcp_store store(rt, address);
  if (role == "worker") {
    rt.run(work(rt, store, worlds_of(backend, device), std::move(*signal)));
  } else {
    leader l(rt, store, worlds_of(backend, device));
    const auto both = [&]() -> mw::task<void> {
      co_await mw::when_all(l.run(), l.tell_each_second());
    };
    rt.run(both());
  }
} catch (const std::exception& e) {
  fmt::print(stderr, "dispatch: {}\n", e.what());
  return 1;
}
