// The script of the demo: one fault after the other.
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
    if (plan_.devices > 0) {
      co_await withdraw_on_c();
    } else {
      co_await cancel_on_c();
    }
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

/// One worker of three dies, and one member of four. The edge forms again under its
/// name.
inline mw::task<void> demo::kill_a() {
  for (const edge& e : edges_)
    gap_before_ms_ = std::max(gap_before_ms_, in_ms(e.longest_gap));
  out_.event(
      fmt::format("kill -9 {}, the worker of a, and {}, a member of the control group",
                  a_.worker.pid(), control_[1].pid()));
  mark(a_, mark_kind::fault, "kill -9");
  chart_.mark(chart::control, mark_kind::fault, out_.seconds(), "kill -9 of one");
  a_.hurt();
  a_.worker.signal(SIGKILL);
  control_[1].signal(SIGKILL);
  while (a_.back_at < a_.hurt_at) co_await mw::sleep_for(1ms);
  figures_.detect_ms = in_ms(a_.broke_at - a_.hurt_at);
  figures_.reform_ms = in_ms(a_.back_at - a_.hurt_at);
  mark(a_, mark_kind::back,
       fmt::format("answers again after {:.0f} ms", figures_.reform_ms));
  out_.event(fmt::format(
      "a was noticed after {:.2f} ms and answers again {:.0f} ms after the kill",
      figures_.detect_ms, figures_.reform_ms));
}

/// A worker stops, and is heard again before its world's patience ends.
inline mw::task<void> demo::stop_b() {
  out_.event(fmt::format("kill -STOP {}, the worker of b", b_.worker.pid()));
  mark(b_, mark_kind::fault, "kill -STOP");
  b_.hurt();
  b_.worker.signal(SIGSTOP);
  while (b_.suspect_at < b_.hurt_at) co_await mw::sleep_for(1ms);
  figures_.suspect_ms = in_ms(b_.suspect_at - b_.hurt_at);
  mark(b_, mark_kind::notice, "suspect");
  out_.event(fmt::format("b is suspect after {:.0f} ms: its requests move to a and c",
                         figures_.suspect_ms));
  co_await mw::sleep_for(1s);
  out_.event(fmt::format("kill -CONT {}", b_.worker.pid()));
  const auto continued_at = steady::now();
  b_.worker.signal(SIGCONT);
  while (b_.back_at < continued_at) co_await mw::sleep_for(1ms);
  figures_.heard_again_ms = in_ms(b_.back_at - continued_at);
  mark(b_, mark_kind::back,
       fmt::format("answers {:.0f} ms after kill -CONT", figures_.heard_again_ms));
}

inline mw::task<large_answer> demo::send_large(mw::world& w, tensor& x) {
  co_await x.send(w, mw::to{1}, large_lane);
  co_return (co_await w.recv_message<large_answer>(mw::from{1}, large_lane)).head;
}

inline tensor ones(const tensor_memory& memory) {
  tensor x(16 << 20, memory);
  std::ranges::fill(x.values(), 1.0f);
  return x;
}

inline bool is_sum_of_twos(const large_answer& answer, tensor& x) {
  return answer.sum == 2.0 * static_cast<double>(x.values().size() / 1024);
}

/// Withdraws an offer. On GPUs no transfer is cut in half: NCCL begins when both ends
/// are there. A transfer that is not yet received can be withdrawn at any time.
inline mw::task<void> demo::withdraw_on_c() {
  if (!c_.up) co_return;
  mw::world& w = *c_.up;
  tensor x;
  co_await mw::offload(helper_, [&] { x = ones(memory_); });
  out_.event("64 MiB on c that its worker does not receive, with a deadline of 50 ms");
  const auto begun = steady::now();
  const auto sent =
      co_await mw::outcome(w.send(*x.on_gpu(), mw::to{1}, unread_lane).within(50ms));
  figures_.cancel_ms = in_ms(steady::now() - begun - 50ms);
  figures_.was_withdrawn = !sent && sent.error().cause == mw::cause::timed_out;
  if (!sent) {
    out_.write(mw::log_level::info, sent.error().text());
    mark(c_, mark_kind::fault, "64 MiB given up");
  }

  co_await mw::offload(helper_, [&] { std::ranges::fill(x.values(), 2.0f); });
  const large_answer next = co_await send_large(w, x);
  figures_.is_whole_after_cancel = is_sum_of_twos(next, x);
  out_.event(fmt::format(
      "the waiter resumed {:.2f} ms after the deadline; c is {}, the next transfer from "
      "that buffer {}",
      figures_.cancel_ms, name_of(w.state()),
      figures_.is_whole_after_cancel ? "came whole" : "came wrong"));
}

/// Cancels a transfer half way; then sends another from the same memory, to its end.
inline mw::task<void> demo::cancel_on_c() {
  if (!c_.up) co_return;
  mw::world& w = *c_.up;
  tensor x;
  co_await mw::offload(helper_, [&] { x = ones(memory_); });
  // The first transfer also makes the worker allocate memory for it.
  (void)co_await send_large(w, x);
  auto begun = steady::now();
  (void)co_await send_large(w, x);
  mw::duration limit = (steady::now() - begun) / 2;
  out_.event(
      fmt::format("64 MiB on c took {:.0f} ms beside its requests; again, with a "
                  "deadline of {:.0f} ms",
                  2 * in_ms(limit), in_ms(limit)));

  // If other programs use the machine too, the next may be twice as fast.
  bool is_cancelled = false;
  for (int tries = 0; tries < 4 && !is_cancelled; ++tries, limit /= 2) {
    begun = steady::now();
    const auto sent =
        co_await mw::outcome(w.send(x.values(), mw::to{1}, large_lane).within(limit));
    is_cancelled = !sent;
    if (is_cancelled) {
      figures_.cancel_ms = in_ms(steady::now() - begun - limit);
      out_.write(mw::log_level::info, sent.error().text());
      mark(c_, mark_kind::fault, "64 MiB given up");
    } else {
      (void)co_await w.recv_message<large_answer>(mw::from{1}, large_lane);
    }
  }

  // The buffer is no longer read.
  co_await mw::offload(helper_, [&] { std::ranges::fill(x.values(), 2.0f); });
  const large_answer next = co_await send_large(w, x);
  figures_.was_cancelled_half_way = is_cancelled && next.given_up == 1;
  figures_.is_whole_after_cancel = is_sum_of_twos(next, x);
  out_.event(
      fmt::format("the waiter resumed {:.2f} ms after the deadline; c is {}, the next "
                  "transfer from that buffer {}",
                  figures_.cancel_ms, name_of(w.state()),
                  figures_.is_whole_after_cancel ? "came whole" : "came wrong"));
}
