// One world of two: the lower rank sends a step, and the higher sends it back.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <manyworlds/launch.hpp>
#include <manyworlds/mw.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

using namespace std::chrono_literals;

/// One rank's end of a world. It tells the agent, if there is one, when the world is up,
/// when it broke, and the longest time between two steps.
class edge {
 public:
  edge(const mw::launch_context& job, mw::rank_t peer)
      : job_(job),
        peer_(peer),
        name_(fmt::format("{}-{}", std::min(job.rank, peer), std::max(job.rank, peer))) {}

  [[nodiscard]] mw::world_options options() const {
    return {.name = name_, .rank = own_rank(), .size = 2};
  }

  /// Sends steps there and back until the world breaks, or the runtime stops.
  mw::task<void> use(mw::runtime& rt, mw::world& w) {
    fmt::print("rank {}: {}@{} is up\n", job_.rank, name_, w.epoch());
    job_.event("up", {{"world", name_}, {"epoch", std::to_string(w.epoch())}});
    longest_ = {};
    try {
      co_await send_steps(rt, w);
    } catch (const mw::world_error& e) {
      if (e.cause() == mw::cause::closed) throw;  // the other has left in order
      fmt::print("rank {}: {}\n", job_.rank, e.what());
      job_.event("broken", {{"world", name_}, {"why", e.what()}});
      throw;
    }
  }

  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  [[nodiscard]] mw::duration longest_gap() const noexcept { return longest_; }

 private:
  [[nodiscard]] mw::rank_t own_rank() const { return job_.rank < peer_ ? 0 : 1; }

  mw::task<void> send_steps(mw::runtime& rt, mw::world& w) {
    auto last = std::chrono::steady_clock::now();
    auto told = last;
    mw::duration longest{};
    for (std::uint64_t step = 1; !rt.is_stopping(); ++step) {
      co_await there_and_back(w, step);
      ++steps_;
      const auto now = std::chrono::steady_clock::now();
      longest = std::max<mw::duration>(longest, now - last);
      longest_ = std::max(longest_, longest);
      last = now;
      if (now - told < 100ms) continue;
      job_.event("gap", {{"world", name_}, {"us", std::to_string(longest / 1us)}});
      told = now;
      longest = {};
    }
  }

  mw::task<void> there_and_back(mw::world& w, std::uint64_t step) {
    const mw::rank_t other = 1 - w.rank();
    std::uint64_t got = step;
    if (w.rank() == 0) {
      co_await mw::sleep_for(1ms);
      co_await w.send(std::span(&step, 1), mw::to{other});
    }
    co_await w.recv(std::span(&got, 1), mw::from{other});
    if (got != step) throw std::runtime_error(fmt::format("{}: a step is lost", name_));
    if (w.rank() == 1) co_await w.send(std::span(&got, 1), mw::to{other});
  }

  const mw::launch_context& job_;
  const mw::rank_t peer_;
  const std::string name_;
  std::uint64_t steps_ = 0;
  mw::duration longest_{};
};

/// Returns the sums of a rank's edges, for people.
inline std::string text_of(mw::rank_t rank, const std::vector<edge>& edges) {
  std::uint64_t steps = 0;
  mw::duration longest{};
  for (const edge& each : edges) {
    steps += each.steps();
    longest = std::max(longest, each.longest_gap());
  }
  return fmt::format("rank {}: {} steps in {} world{}, at most {:.1f} ms apart", rank,
                     steps, edges.size(), edges.size() == 1 ? "" : "s",
                     std::chrono::duration<double, std::milli>(longest).count());
}
