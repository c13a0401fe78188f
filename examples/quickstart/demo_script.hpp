// What happens in the demo, one thing after the other.
#pragma once

#include <algorithm>

#include "demo.hpp"

inline mw::task<void> demo::script() {
  co_await formed();
  const auto end = steady::now() + std::chrono::duration_cast<mw::duration>(
                                       std::chrono::duration<double>(plan_.seconds));
  if (plan_.hurts) {
    co_await mw::sleep_for(1500ms);
    co_await kill_a();
    co_await mw::sleep_for(1500ms);
    co_await stop_b();
    co_await mw::sleep_for(1s);
    co_await cancel_on_c();
  }
  co_await mw::sleep_until(end);
}

inline mw::task<void> demo::formed() {
  for (;;) {
    const bool all_up =
        a_.up && b_.up && c_.up && (control_report_.answers || control_is_gone_);
    if (all_up) co_return;
    co_await mw::sleep_for(2ms);
  }
}

/// One worker of three dies, and one member of four. The edge is formed again under its
/// name.
inline mw::task<void> demo::kill_a() {
  for (const edge& e : edges_)
    gap_before_ms_ = std::max(gap_before_ms_, in_ms(e.longest_gap));
  out_.event(
      fmt::format("kill -9 {}, the worker of a, and {}, a member of the control group",
                  a_.worker.pid(), control_[1].pid()));
  a_.hurt();
  a_.worker.signal(SIGKILL);
  control_[1].signal(SIGKILL);
  while (a_.back_at < a_.hurt_at) co_await mw::sleep_for(1ms);
  figures_.detect_ms = in_ms(a_.broke_at - a_.hurt_at);
  figures_.reform_ms = in_ms(a_.back_at - a_.hurt_at);
  out_.event(fmt::format(
      "a was noticed after {:.2f} ms and answers again {:.0f} ms after the kill",
      figures_.detect_ms, figures_.reform_ms));
}

/// A worker stops, and is heard again before its world's patience ends.
inline mw::task<void> demo::stop_b() {
  out_.event(fmt::format("kill -STOP {}, the worker of b", b_.worker.pid()));
  b_.hurt();
  b_.worker.signal(SIGSTOP);
  while (b_.suspect_at < b_.hurt_at) co_await mw::sleep_for(1ms);
  figures_.suspect_ms = in_ms(b_.suspect_at - b_.hurt_at);
  out_.event(fmt::format("b is suspect after {:.0f} ms: its requests move to a and c",
                         figures_.suspect_ms));
  co_await mw::sleep_for(1s);
  out_.event(fmt::format("kill -CONT {}", b_.worker.pid()));
  const auto continued_at = steady::now();
  b_.worker.signal(SIGCONT);
  while (b_.back_at < continued_at) co_await mw::sleep_for(1ms);
  figures_.heard_again_ms = in_ms(b_.back_at - continued_at);
}

inline mw::task<large_answer> demo::send_large(mw::world& w,
                                               const std::vector<float>& tensor) {
  co_await w.send(tensor, mw::to{1}, large_lane);
  co_return (co_await w.recv_message<large_answer>(mw::from{1}, large_lane)).head;
}

/// Half of a transfer; then the whole of another from the same memory.
inline mw::task<void> demo::cancel_on_c() {
  if (!c_.up) co_return;
  mw::world& w = *c_.up;
  std::vector<float> tensor;
  co_await mw::offload(helper_, [&] { tensor.assign(16 << 20, 1); });
  // The first one also makes the worker find memory for it.
  (void)co_await send_large(w, tensor);
  auto begun = steady::now();
  (void)co_await send_large(w, tensor);
  mw::duration limit = (steady::now() - begun) / 2;
  out_.event(
      fmt::format("64 MiB on c took {:.0f} ms beside its requests; again, with a "
                  "deadline of {:.0f} ms",
                  2 * in_ms(limit), in_ms(limit)));

  // Where others use the machine too, the next may be twice as fast.
  bool is_cancelled = false;
  for (int tries = 0; tries < 4 && !is_cancelled; ++tries, limit /= 2) {
    begun = steady::now();
    const auto sent =
        co_await mw::outcome(w.send(tensor, mw::to{1}, large_lane).within(limit));
    is_cancelled = !sent;
    if (is_cancelled) {
      figures_.cancel_ms = in_ms(steady::now() - begun - limit);
      out_.write(mw::log_level::info, sent.error().text());
    } else {
      (void)co_await w.recv_message<large_answer>(mw::from{1}, large_lane);
    }
  }

  // Nobody reads it any more.
  co_await mw::offload(helper_, [&] { std::fill(tensor.begin(), tensor.end(), 2.0f); });
  const large_answer next = co_await send_large(w, tensor);
  figures_.was_cancelled_half_way = is_cancelled && next.given_up == 1;
  figures_.is_whole_after_cancel =
      next.sum == 2.0 * static_cast<double>(tensor.size() / 1024);
  out_.event(
      fmt::format("the waiter went on {:.2f} ms after the deadline; c is {}, the next "
                  "transfer from that buffer {}",
                  figures_.cancel_ms, name_of(w.state()),
                  figures_.is_whole_after_cancel ? "came whole" : "came wrong"));
}
