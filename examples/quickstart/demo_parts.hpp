// The parts of the demo that run all the time: edges, workers, the control group, the
// table of rates.
#pragma once

#include <string.h>

#include "demo.hpp"

/// `place` tells the processes of a world apart, and so their GPUs.
inline process demo::start(std::vector<std::string> arguments, int place) const {
  for (const std::string& each :
       {std::string("--store"), store_address_, std::string("--device"),
        std::to_string(plan_.device_of(place))}) {
    arguments.push_back(each);
  }
  // NCCL refuses two ranks on one GPU, unless they seem to be of two hosts.
  constexpr int most_ranks = 4;
  const bool share_devices = plan_.devices > 0 && plan_.devices < most_ranks;
  return process(std::move(arguments),
                 share_devices ? fmt::format("NCCL_HOSTID=quickstart-{}", place) : "");
}

inline process demo::make_worker(const edge& e) const {
  const auto place = static_cast<int>(&e - edges_.data()) + 1;
  return start({"--role", "worker", "--world", e.name}, place);
}

inline void demo::start_processes() {
  for (edge& e : edges_) e.worker = make_worker(e);
  control_.push_back(start({"--role", "control"}, 0));
  for (int rank = 1; rank < 4; ++rank) {
    control_.push_back(start({"--role", "worker", "--world", "control", "--rank",
                              std::to_string(rank), "--size", "4"},
                             rank));
  }
  out_.print(fmt::format(
      "Three worlds of two, a b c, with one worker each, and as a control the same\n"
      "traffic in one world of four. A request carries {} KiB of floats there and back;\n"
      "{} at a time go to each worker. {}\n"
      "Kill any of these yourself:\n{}\n",
      elements * sizeof(float) / 1024, lanes, backend_text(), pids()));
}

inline std::string demo::backend_text() const {
  if (plan_.devices == 0) return "Backend: host.";
  return fmt::format("Backend: nccl; {} GPU{}, taken in turn from device {} on.",
                     plan_.devices, plan_.devices == 1 ? "" : "s", plan_.first_device);
}

inline std::string demo::pids() const {
  std::string text = fmt::format(
      "\n  workers of a, b, c:  kill -9 {}   {}   {}     (or kill -STOP, and -CONT)\n",
      a_.worker.pid(), b_.worker.pid(), c_.worker.pid());
  if (control_is_gone_) return text;
  text += "  the control group:   kill -9";
  for (const process& p : control_) {
    if (p.pid() > 0) text += fmt::format(" {}  ", p.pid());
  }
  return text + "\n";
}

/// Each edge is kept: when its world breaks it is formed again under its name. When all
/// edges have nothing left to send, everything ends.
inline mw::task<void> demo::run_edges(mw::scope& all) {
  auto body = [this](edge& e) {
    return [this, &e](mw::world& w) -> mw::task<void> {
      e.note_up(w);
      try {
        co_await stream_on_all_lanes(requests_, e, w, memory_);
      } catch (const mw::world_error& error) {
        note_break(e, error.failure());
        throw;
      }
      e.up = nullptr;
      e.is_over = true;
    };
  };
  auto each = [&](mw::scope& s) -> mw::task<void> {
    for (edge& e : edges_) {
      s.spawn(mw::keep(runtime_, store_, memory_.world(e.name, 0, 2), body(e)));
    }
    co_return;
  };
  co_await mw::scope::run(each);
  all.cancel();
}

inline void demo::note_break(edge& e, const mw::failure& why) {
  e.up = nullptr;
  e.broke_at = steady::now();
  if (e.now != condition::hurt) {
    e.hurt();
    // The script or the user has ended the worker; else this break is a loss.
    if (why.cause == mw::cause::peer_died) {
      e.died = why.peer.pid;
      explain_death(e);
    } else if (plan_.hurts) {
      ++e.lost;
    }
  }
  // A worker that was only silent is useless now: its world is over.
  if (why.cause != mw::cause::peer_died && e.worker.pid() == why.peer.pid)
    e.worker.signal(SIGKILL);
}

/// Explains a death. The break and the end of the process are seen in any order.
inline void demo::explain_death(edge& e) {
  if (e.died == 0 || e.died != e.last_ending.pid) return;
  const int signal = e.last_ending.signal;
  const bool was_asked = signal == SIGKILL || signal == SIGTERM || signal == SIGINT;
  if (was_asked) {
    out_.event(fmt::format("pid {}, the worker of {}, was ended by {}, not by this demo",
                           e.died, e.name, strsignal(signal)));
  } else if (plan_.hurts) {
    ++e.lost;
  }
  e.died = 0;
}

/// Replaces each worker that ended, for any reason.
inline mw::task<void> demo::watch_workers() {
  for (;;) {
    co_await mw::sleep_for(2ms);
    for (process& p : control_) (void)p.take_ending();
    for (edge& e : edges_) {
      const auto ending = e.worker.take_ending();
      if (!ending || e.is_over) continue;
      e.last_ending = *ending;
      explain_death(e);
      process next = co_await mw::offload(helper_, [&] { return make_worker(e); });
      e.worker = std::move(next);
      out_.event(fmt::format("pid {} is the new worker of {}", e.worker.pid(), e.name));
    }
  }
}

/// Gives the open requests of a suspect worker to other workers too. If both answer,
/// one answer is dropped.
inline mw::task<void> demo::watch_suspects() {
  for (;;) {
    co_await mw::sleep_for(2ms);
    for (edge& e : edges_) {
      if (!e.up) continue;
      if (const bool is_now = e.up->is_suspect(1); is_now != e.is_suspect) {
        e.is_suspect = is_now;
        if (!is_now) {
          e.now = condition::recovering;
        } else {
          note_suspicion(e);
        }
      }
      if (!e.is_suspect) continue;
      for (auto& [number, was_put_back] : e.in_flight) {
        if (!std::exchange(was_put_back, true)) requests_.put_back(number);
      }
    }
  }
}

inline void demo::note_suspicion(edge& e) {
  e.suspect_at = steady::now();
  if (e.now == condition::hurt) return;
  e.hurt();
  // The script or the user has stopped the worker; else this suspicion is a loss.
  if (e.worker.is_stopped()) {
    out_.event(fmt::format("pid {}, the worker of {}, was stopped, not by this demo",
                           e.worker.pid(), e.name));
  } else if (plan_.hurts) {
    ++e.lost;
  }
}

inline mw::task<void> demo::follow_control() {
  mw::world reports(runtime_, store_, {.name = "control-report", .rank = 0, .size = 2});
  auto follow = [&]() -> mw::task<void> {
    co_await reports;
    for (;;) {
      control_report_ = (co_await reports.recv_message<control_report>(mw::from{1})).head;
      if (control_report_.broken_by.empty()) continue;
      out_.event(
          fmt::format("{}: the whole group is gone", control_report_.broken_by.view()));
      control_is_gone_ = true;
      chart_.mark(chart::control, mark_kind::notice, out_.seconds(),
                  "the whole group is gone");
    }
  };
  const auto ended = co_await mw::outcome(follow());
  if (!control_is_gone_)
    out_.event(fmt::format("the control group's leader, which reports to us, is gone: {}",
                           ended.error().text()));
  control_is_gone_ = true;
}

inline mw::task<void> demo::print_rates() {
  co_await formed();
  out_.header();
  std::array<std::uint64_t, 4> before{};
  auto last = steady::now();
  int rows = 0;
  // A machine that stood still gets one long row, not many empty ones.
  for (auto next = last + 100ms;; next = std::max(next + 100ms, steady::now() + 50ms)) {
    co_await mw::sleep_until(next);
    // A user who shall kill them must see them.
    if (!plan_.hurts && ++rows % 30 == 0) {
      out_.print(pids());
      out_.header();
    }
    const auto t = steady::now();
    const std::array now{a_.answers, b_.answers, c_.answers, control_report_.answers};
    const auto rate = [&](std::size_t i) {
      return static_cast<double>(now[i] - before[i]) * 2 * elements * sizeof(float) /
             1e3 / in_ms(t - last);
    };
    const std::array rates{rate(0), rate(1), rate(2), rate(3)};
    out_.row(rates, control_is_gone_);
    chart_.note_rates(out_.seconds(), in_ms(t - last) / 1e3, rates);
    last = t;
    before = now;
  }
}
