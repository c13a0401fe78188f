// Three worlds and a control group under load: it kills, stops and cancels, and shows
// what the others notice. It starts its own processes. The parts are in quickstart/: an
// edge.hpp, the demo.hpp of three, the workers.hpp at the other ends.
#include <pthread.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>

#include "quickstart/demo.hpp"

namespace {

/// Sends Ctrl-C and SIGTERM as a message to the demo: the library leaves signals to the
/// application.
class signal_thread {
 public:
  explicit signal_thread(mw::channel<int>& signals) {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    thread_ = std::thread([this, &signals] {
      for (int number = 0; !is_ending_;) {
        sigwait(&set_, &number);
        (void)signals.try_push(number);
      }
    });
  }
  signal_thread(const signal_thread&) = delete;
  ~signal_thread() {
    is_ending_ = true;
    pthread_kill(thread_.native_handle(), SIGTERM);
    thread_.join();
  }

 private:
  sigset_t set_;
  std::atomic<bool> is_ending_{false};
  std::thread thread_;
};

int run_demo(const demo_plan& plan, const std::string& picture) {
  mw::channel<int> signals(2);
  const signal_thread taking_signals(signals);
  screen out(plan.as_json);
  mw::runtime rt(demo_options(&out, mw::log_level::info));
  rt.serve_dumps();  // for mwstat
  const mw::hosted_store host(rt, "127.0.0.1:0");
  mw::tcp_store store(rt, host.address());

  demo d(rt, store, host.address(), plan, out);
  rt.run(d.run(signals));
  if (!picture.empty()) d.draw(picture);
  return d.summarize() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("When a peer dies, only the coroutines talking to it notice.");
  demo_plan plan;
  bool no_faults = false;
  std::string backend = "host", picture;
  int device = -1;
  app.add_option("--seconds", plan.seconds, "how long to run")
      ->check(CLI::Range(1.0, 1e6));
  app.add_flag("--no-faults", no_faults,
               "cause no faults: kill -9 or -STOP the workers yourself");
  app.add_flag("--json", plan.as_json, "print only one line of figures at the end");
  app.add_option("--plot", picture, "draw the rates and the faults into this SVG file");
  app.add_option("--backend", backend, "where the requests' tensors lie")
      ->check(CLI::IsMember({"host", "nccl"}))
      ->capture_default_str();
  app.add_option("--device", device,
                 "with nccl: the first GPU; the processes take them in turn");

  // The demo starts itself in these roles.
  std::string role, store, world;
  pid_t parent = 0;
  int rank = 1, size = 2;
  app.add_option("--role", role)->group("");
  app.add_option("--store", store)->group("");
  app.add_option("--world", world)->group("");
  app.add_option("--rank", rank)->group("");
  app.add_option("--size", size)->group("");
  app.add_option("--parent", parent)->group("");
  CLI11_PARSE(app, argc, argv);

  if (parent) end_with(parent);
  if (role == "worker") return run_worker(store, world, rank, size, device);
  if (role == "control") return run_control_leader(store, device);
  if (backend == "nccl") {
    plan.devices = mw::device_count();
    plan.first_device = std::max(device, 0);
    if (device >= plan.devices) {
      throw std::invalid_argument(fmt::format(
          "there is no GPU {}; there are {}, from 0 on", device, plan.devices));
    }
  }
  plan.hurts = !no_faults;
  if (no_faults && !app.count("--seconds")) plan.seconds = 1e6;
  return run_demo(plan, picture);
} catch (const std::exception& e) {
  std::fprintf(stderr, "quickstart: %s\n", e.what());
  return 1;
}
