// What goes on in the demo all the time: edges, workers, the control group, the table of
// rates.
#pragma once

#include "demo.hpp"

inline process demo::make_worker(const edge& e) const {
  return process({"--role", "worker", "--store", store_address_, "--world", e.name});
}

inline void demo::start_processes() {
  for (edge& e : edges_) e.worker = make_worker(e);
  control_.emplace_back(
      std::vector<std::string>{"--role", "control", "--store", store_address_});
  for (const char* rank : {"1", "2", "3"}) {
    control_.emplace_back(std::vector<std::string>{"--role", "worker", "--store",
                                                   store_address_, "--world", "control",
                                                   "--rank", rank, "--size", "4"});
  }
  out_.print(fmt::format(
      "Three worlds of two, a b c, with one worker each, and as a control the same\n"
      "traffic in one world of four. A request carries {} KiB of floats there and back;\n"
      "{} at a time go to each worker. Kill any of these yourself:\n{}\n",
      elements * sizeof(float) / 1024, lanes, pids()));
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
/// have said what there was to say, everything ends.
inline mw::task<void> demo::run_edges(mw::scope& all) {
  auto body = [this](edge& e) {
    return [this, &e](mw::world& w) -> mw::task<void> {
      e.note_up(w);
      try {
        co_await stream_on_all_lanes(requests_, e, w);
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
      s.spawn(
          mw::keep(runtime_, store_, {.name = e.name, .rank = 0, .size = 2}, body(e)));
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
    // By the script's will or by the user's: else it should not have broken.
    if (plan_.hurts) ++e.lost;
    e.hurt();
  }
  // One that was only silent is of no use any more: its world is over.
  if (e.worker.pid() == why.peer.pid) e.worker.signal(SIGKILL);
}

/// A worker that ended is replaced, whoever ended it.
inline mw::task<void> demo::watch_workers() {
  for (;;) {
    co_await mw::sleep_for(2ms);
    for (process& p : control_) (void)p.has_ended();
    for (edge& e : edges_) {
      if (!e.worker.has_ended() || e.is_over) continue;
      process next = co_await mw::offload(helper_, [&] { return make_worker(e); });
      e.worker = std::move(next);
      out_.event(fmt::format("pid {} is the new worker of {}", e.worker.pid(), e.name));
    }
  }
}

/// What a suspect worker was asked last is asked elsewhere too. Should both answer, one
/// is dropped.
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
          e.suspect_at = steady::now();
          // By the script's will or by the user's: else it should have been heard.
          if (plan_.hurts && e.now != condition::hurt) ++e.lost;
          if (e.now != condition::hurt) e.hurt();
        }
      }
      if (!e.is_suspect) continue;
      for (auto& [number, was_put_back] : e.in_flight) {
        if (!std::exchange(was_put_back, true)) requests_.put_back(number);
      }
    }
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
  for (auto next = last + 100ms;; next += 100ms) {
    co_await mw::sleep_until(next);
    // Whoever shall kill them must see them.
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
    out_.row(rate(0), rate(1), rate(2), rate(3), control_is_gone_);
    last = t;
    before = now;
  }
}
