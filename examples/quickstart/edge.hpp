// One edge of the demo: a world of two, the worker at its other end, and its
// measurements.
#pragma once

#include <algorithm>
#include <chrono>
#include <manyworlds/mw.hpp>
#include <map>
#include <string>
#include <vector>

#include "../shared/process.hpp"
#include "../shared/tensor.hpp"
#include "requests.hpp"
#include "workers.hpp"

using steady = std::chrono::steady_clock;

/// Says whether the worker is under a fault: losses of such a world do not count.
enum class condition { healthy, hurt, recovering };

struct edge {
  explicit edge(std::string name) : name(std::move(name)) {}

  std::string name;
  process worker;
  /// The world, while it is up.
  mw::world* up = nullptr;
  condition now = condition::healthy;
  /// True once it was left in order, at the end.
  bool is_over = false;

  std::uint64_t answers = 0;
  /// Wrong answers, and requests that failed while the worker was under no fault.
  std::uint64_t lost = 0;
  mw::duration longest_gap{};
  steady::time_point last_answer{}, hurt_at{}, broke_at{}, suspect_at{}, back_at{};
  bool is_suspect = false;
  /// The peer that died under no known fault, until it is known how.
  std::int64_t died = 0;
  process::ending last_ending;
  /// Requests that the worker has not answered; true: it was put back meanwhile.
  std::map<std::uint64_t, bool> in_flight;

  void hurt() noexcept {
    now = condition::hurt;
    hurt_at = steady::now();
  }
  void note_up(mw::world& w) noexcept {
    up = &w;
    is_suspect = false;
    if (now == condition::hurt) now = condition::recovering;
    last_answer = steady::now();
  }
  void note_answer() noexcept {
    const auto t = steady::now();
    ++answers;
    if (now == condition::recovering) back_at = t;
    if (now != condition::hurt) {
      if (now == condition::healthy)
        longest_gap = std::max(longest_gap, mw::duration(t - last_answer));
      now = condition::healthy;
    }
    last_answer = t;
  }
};

/// A request on its way. It returns to the queue unless its answer came, also when the
/// frame is unwound.
class request_in_flight {
 public:
  request_in_flight(request_queue& queue, edge& on, std::uint64_t number)
      : queue_(queue), edge_(on) {
    here_ = edge_.in_flight.emplace(number, false).first;
  }
  request_in_flight(const request_in_flight&) = delete;
  ~request_in_flight() {
    const auto [number, was_put_back] = *here_;
    edge_.in_flight.erase(here_);
    if (was_answered_) {
      queue_.note_answer(number);
    } else if (!was_put_back) {
      queue_.put_back(number);
    }
  }
  void note_answer() noexcept {
    was_answered_ = true;
    edge_.note_answer();
  }

 private:
  request_queue& queue_;
  edge& edge_;
  std::map<std::uint64_t, bool>::iterator here_;
  bool was_answered_ = false;
};

/// Sends requests and takes answers on one lane, until all are answered and no new ones
/// are wanted.
inline mw::task<void> stream(request_queue& queue, edge& e, mw::world& w, mw::lane on,
                             const tensor_memory& memory) {
  tensor asked(elements, memory), answer(elements, memory);
  for (;;) {
    // It may be heard again; until then new requests go to the other worlds.
    while (w.is_suspect(1)) co_await mw::sleep_for(5ms);
    const auto number = queue.take();
    if (!number) {
      if (queue.all_answered()) co_return;
      // A pause without requests is no gap.
      e.last_answer = steady::now();
      co_await mw::sleep_for(5ms);
      continue;
    }
    request_in_flight request(queue, e, *number);
    const auto value = static_cast<float>(*number % 4096);
    asked.values().front() = asked.values().back() = value;
    co_await asked.send(w, mw::to{1}, on, mw::user_word{*number});
    const mw::message_info info = co_await answer.recv(w, mw::from{1}, on);
    const bool is_right = info.user.value() == *number &&
                          answer.values().front() == value + 1 &&
                          answer.values().back() == value + 1;
    if (is_right)
      request.note_answer();
    else
      ++e.lost;
  }
}

/// The body of an edge: it runs several streams at a time, so that the worker always
/// has something to do.
inline mw::task<void> stream_on_all_lanes(request_queue& queue, edge& e, mw::world& w,
                                          const tensor_memory& memory) {
  co_await mw::scope::run([&](mw::scope& s) -> mw::task<void> {
    for (std::uint64_t i = 0; i < lanes; ++i)
      s.spawn(stream(queue, e, w, mw::lane{i}, memory));
    co_return;
  });
}
