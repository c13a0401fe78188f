// The demo: three edges and a control group under load, the script of faults, and the
// figures.
#pragma once

#include <array>
#include <cstdio>
#include <manyworlds/mw.hpp>
#include <string>
#include <vector>

#include "../shared/tensor.hpp"
#include "chart.hpp"
#include "edge.hpp"
#include "screen.hpp"

struct demo_plan {
  double seconds = 10;
  bool hurts = true;
  bool as_json = false;
  /// GPUs that the processes take in turn, from `first_device` on; 0: host memory.
  int devices = 0;
  int first_device = 0;

  /// Returns the device of the n-th process of a world: -1 without GPUs.
  [[nodiscard]] int device_of(int n) const noexcept {
    return devices ? (first_device + n) % devices : -1;
  }
};

/// Runs the demo. All its tasks live on one reactor, on the main thread.
class demo {
 public:
  demo(mw::runtime& rt, mw::store& store, std::string store_address, demo_plan plan,
       screen& out)
      : runtime_(rt),
        store_(store),
        store_address_(std::move(store_address)),
        plan_(plan),
        out_(out),
        memory_(plan.device_of(0)) {}

  /// Runs until the script's end or a signal; then open requests are answered first.
  mw::task<void> run(mw::channel<int>& signals) {
    start_processes();
    auto all = [&](mw::scope& s) -> mw::task<void> {
      s.spawn(run_edges(s));
      s.spawn(watch_workers());
      s.spawn(watch_suspects());
      s.spawn(follow_control());
      s.spawn(print_rates());
      const auto first = co_await mw::when_any(script(), signals.pop());
      requests_.close();
      // At the next signal, or when this takes too long (a worker may be stopped), open
      // requests stay open. After Ctrl-C the limit is shorter.
      const mw::duration patience = std::get<1>(first) ? 1s : 8s;
      (void)co_await mw::when_any(mw::sleep_for(patience), signals.pop());
      // A stopped worker would be waited for until it tells what it has read.
      for (const edge& e : edges_) e.worker.signal(SIGKILL);
      s.cancel();
    };
    co_await mw::scope::run(all);
  }

  /// Prints the last lines; returns true if nothing was lost. In summary.hpp.
  bool summarize();

  /// Writes the rates and the marks so far. Throws std::runtime_error if it cannot.
  void draw(const std::string& file) const {
    chart_.write(file,
                 fmt::format("Three worlds of two, and as a control one of four ({})",
                             plan_.devices > 0 ? "nccl" : "host"));
  }

 private:
  struct measured {
    double detect_ms = -1, suspect_ms = -1, heard_again_ms = -1, reform_ms = -1;
    double whole_transfer_ms = -1, cancel_ms = -1;
    bool was_cancelled_half_way = false, was_withdrawn = false;
    bool is_whole_after_cancel = false;
  };

  // In demo_parts.hpp: what runs all the time.
  void start_processes();
  [[nodiscard]] std::string pids() const;
  [[nodiscard]] std::string backend_text() const;
  mw::task<void> run_edges(mw::scope& all);
  mw::task<void> watch_workers();
  mw::task<void> watch_suspects();
  mw::task<void> follow_control();
  mw::task<void> print_rates();
  void mark(const edge& e, mark_kind kind, std::string text) {
    chart_.mark(static_cast<std::size_t>(&e - edges_.data()), kind, out_.seconds(),
                std::move(text));
  }
  [[nodiscard]] process start(std::vector<std::string> arguments, int place) const;
  [[nodiscard]] process make_worker(const edge& e) const;
  void note_break(edge& e, const mw::failure& why);
  void explain_death(edge& e);
  void note_suspicion(edge& e);

  // In demo_script.hpp: the faults.
  mw::task<void> script();
  mw::task<void> formed();
  mw::task<void> kill_a();
  mw::task<void> stop_b();
  mw::task<void> cancel_on_c();
  mw::task<void> withdraw_on_c();
  mw::task<large_answer> send_large(mw::world& w, tensor& x);

  mw::runtime& runtime_;
  mw::store& store_;
  const std::string store_address_;
  const demo_plan plan_;
  screen& out_;
  const tensor_memory memory_;
  request_queue requests_;
  std::array<edge, 3> edges_{edge("a"), edge("b"), edge("c")};
  edge &a_ = edges_[0], &b_ = edges_[1], &c_ = edges_[2];
  std::vector<process> control_;
  control_report control_report_;
  bool control_is_gone_ = false;
  /// For work that would hold up the reactor: starting processes, allocating memory.
  mw::worker_thread helper_{"mw-helper"};
  measured figures_;
  double gap_before_ms_ = 0;
  chart chart_;
};

#include "demo_parts.hpp"
#include "demo_script.hpp"
#include "summary.hpp"
