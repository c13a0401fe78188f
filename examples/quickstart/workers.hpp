// The demo's other processes: workers, and the leader of the control group.
#pragma once

#include <array>
#include <chrono>
#include <manyworlds/mw.hpp>
#include <optional>
#include <string>

#include "../shared/tensor.hpp"

using namespace std::chrono_literals;

/// Elements of the tensor that goes out with each request and comes back with its answer.
inline constexpr std::size_t elements = 64 * 1024;
/// Requests that are on their way at a time in each world, each on a lane of its own.
inline constexpr std::uint64_t lanes = 4;
/// Lane for transfers of another size: lanes do not block each other.
inline constexpr mw::lane large_lane{lanes};
/// Lane on which no worker receives.
inline constexpr mw::lane unread_lane{lanes + 1};

/// Eight processes share the machine: a process that waits should leave it to the
/// others.
inline mw::runtime_options demo_options(mw::log_sink* log, mw::log_level from) {
  return {.spin = mw::duration::zero(), .log = log, .log_from = from};
}

/// Answers each request with its tensor, every element one larger, under the request's
/// number.
inline mw::task<void> answer_requests(mw::world& w, mw::lane on,
                                      const tensor_memory& memory) {
  tensor x(elements, memory);
  for (;;) {
    const mw::message_info request = co_await x.recv(w, mw::from{0}, on);
    for (float& value : x.values()) value += 1;
    co_await x.send(w, mw::to{0}, on, request.user);
  }
}

/// The answer to a tensor of another size.
struct large_answer {
  /// Sum of every 1024th element: a long loop here would delay the requests.
  double sum = 0;
  /// Transfers so far that the leader gave up after they had begun.
  std::uint64_t given_up = 0;
};

inline mw::task<void> sum_large_tensors(mw::world& w, const tensor_memory& memory) {
  mw::worker_thread helper("mw-helper");
  tensor x;
  large_answer answer;
  for (;;) {
    const mw::message_info next = co_await w.arrival(mw::from{0}, large_lane);
    // The kernel takes longer to find the memory than the transfer will: do not do it
    // on the reactor.
    co_await mw::offload(helper, [&] {
      if (x.values().size() != next.count) x = tensor(next.count, memory);
    });
    const auto taken = co_await mw::outcome(x.recv(w, mw::from{0}, large_lane));
    if (!taken) {
      if (taken.error().cause != mw::cause::cancelled_by_peer)
        throw mw::world_error(taken.error());
      // The world is unaffected.
      ++answer.given_up;
      continue;
    }
    answer.sum = 0;
    for (std::size_t i = 0; i < next.count; i += 1024) answer.sum += x.values()[i];
    co_await w.send_message(answer, mw::to{0}, large_lane);
  }
}

inline mw::task<void> work(mw::world& w, const tensor_memory& memory) {
  co_await mw::scope::run([&](mw::scope& s) -> mw::task<void> {
    for (std::uint64_t i = 0; i < lanes; ++i)
      s.spawn(answer_requests(w, mw::lane{i}, memory));
    s.spawn(sum_large_tensors(w, memory));
    co_return;
  });
}

inline int run_worker(const std::string& store_address, const std::string& world,
                      int rank, int size, int device) {
  const tensor_memory memory(device);
  mw::runtime rt(demo_options(nullptr, mw::log_level::silent));
  mw::tcp_store store(rt, store_address);
  // A worker of an edge serves until the leader leaves; the control group is formed once.
  auto serve_once = [&]() -> mw::task<void> {
    mw::world w(rt, store, memory.world(world, rank, size));
    co_await w;
    (void)co_await mw::outcome(work(w, memory));
  };
  const auto serve = [&](mw::world& w) { return work(w, memory); };
  if (size == 2) {
    rt.run(mw::keep(rt, store, memory.world(world, rank, size), serve));
  } else {
    rt.run(serve_once());
  }
  return 0;
}

// --- the control: the same traffic in one world of four

struct control_report {
  std::uint64_t answers = 0;
  /// The failure by which the group broke, or empty.
  mw::inline_text<240> broken_by;
};

class control_leader {
 public:
  control_leader(mw::runtime& rt, mw::store& store, const tensor_memory& memory)
      : memory_(memory),
        group_(rt, store, memory.world("control", 0, 4)),
        reports_(rt, store, {.name = "control-report", .rank = 1, .size = 2}) {}

  mw::task<void> run() {
    co_await reports_;
    co_await group_;
    auto all = [this](mw::scope& s) -> mw::task<void> {
      for (mw::rank_t rank = 1; rank < group_.size(); ++rank) {
        for (std::uint64_t i = 0; i < lanes; ++i) s.spawn(ask(rank, mw::lane{i}));
      }
      s.spawn(report());
      co_return;
    };
    const auto ended = co_await mw::outcome(mw::scope::run(all));
    report_.broken_by = mw::inline_text<240>::clipped(ended.error().text());
    co_await reports_.send_message(report_, mw::to{0}).delivered();
    co_await reports_.leave();
  }

 private:
  mw::task<void> ask(mw::rank_t rank, mw::lane on) {
    tensor x(elements, memory_);
    for (;;) {
      co_await x.send(group_, mw::to{rank}, on);
      co_await x.recv(group_, mw::from{rank}, on);
      ++report_.answers;
    }
  }
  mw::task<void> report() {
    for (;;) {
      co_await mw::sleep_for(20ms);
      const control_report now = report_;
      co_await reports_.send_message(now, mw::to{0});
    }
  }

  const tensor_memory& memory_;
  mw::world group_;
  mw::world reports_;
  control_report report_;
};

inline int run_control_leader(const std::string& store_address, int device) {
  const tensor_memory memory(device);
  mw::runtime rt(demo_options(nullptr, mw::log_level::silent));
  mw::tcp_store store(rt, store_address);
  control_leader leader(rt, store, memory);
  rt.run(leader.run());
  return 0;
}
