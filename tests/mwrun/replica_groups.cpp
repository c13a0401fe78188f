// Replica groups as torchft has them, for a test of mwrun: two groups of two ranks train
// alike, each in a world of its own, and their leaders share a world in which they meet
// each step. A group that has lost the other goes on alone, and one that comes back takes
// the step of the other. Each rank prints the longest time that it waited in any
// operation.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <manyworlds/launch.hpp>
#include <manyworlds/mw.hpp>
#include <span>
#include <stdexcept>
#include <string>

using namespace std::chrono_literals;

namespace {

constexpr mw::rank_t group_size = 2;
/// No operation between groups waits for longer.
constexpr auto operation_timeout = 1s;

class member {
 public:
  member(mw::runtime& rt, mw::store& store, const mw::launch_context& job)
      : rt_(rt),
        store_(store),
        group_(job.rank / group_size),
        place_(job.rank % group_size),
        rank_(job.rank) {}

  mw::task<void> run() {
    const mw::world_options own = {
        .name = "group" + std::to_string(group_), .rank = place_, .size = group_size};
    const auto train = [this](mw::world& w) { return train_in(w); };
    if (!leads()) {
      co_await mw::keep(rt_, store_, own, train);
      co_return;
    }
    const mw::world_options across = {.name = "across", .rank = group_, .size = 2};
    const auto lend = [this](mw::world& w) { return lend_across(w); };
    co_await mw::when_any(
        mw::keep(rt_, store_, own, train),
        mw::keep(rt_, store_, across, lend, mw::after_close::form_again));
  }

 private:
  using clock = std::chrono::steady_clock;

  [[nodiscard]] bool leads() const { return place_ == 0; }

  /// Lets `train_in` use the world until it breaks; `keep` forms it again then.
  mw::task<void> lend_across(mw::world& w) {
    across_ = &w;
    const mw::failure why = co_await w.broken();
    across_ = nullptr;
    std::printf("rank %d alone: %s\n", rank_, why.detail.c_str());
    throw mw::world_error(why);
  }

  mw::task<void> train_in(mw::world& w) {
    // A replacement takes the step of the member that lives.
    co_await w.all_reduce(std::span(&step_, 1), mw::max);
    std::printf("rank %d group %d epoch %llu from step %llu\n", rank_, group_,
                static_cast<unsigned long long>(w.epoch()),
                static_cast<unsigned long long>(step_));
    auto told = clock::now();
    for (;;) {
      co_await take_step(w);
      co_await mw::sleep_for(5ms);
      if (clock::now() - told < 100ms) continue;
      told = clock::now();
      tell();
    }
  }

  /// The leader meets the other group, if it is there, and tells its own what came of it.
  mw::task<void> take_step(mw::world& w) {
    std::uint64_t meeting[2] = {step_ + 1, 0};
    if (leads()) co_await meet(meeting);
    const auto began = clock::now();
    co_await w.broadcast(std::span(meeting), mw::root{0});
    std::uint64_t total = meeting[0];
    co_await w.all_reduce(std::span(&total, 1), mw::sum);
    inside_ = std::max<mw::duration>(inside_, clock::now() - began);
    if (total != group_size * meeting[0])
      throw std::runtime_error("members of a group are not in one step");
    if (meeting[0] != step_ + 1) ++jumps_;
    step_ = meeting[0];
    together_ += meeting[1];
  }

  /// Gives the later of both groups' steps; a group without the other keeps its own.
  mw::task<void> meet(std::uint64_t (&meeting)[2]) {
    if (across_ == nullptr) co_return;
    std::uint64_t later = meeting[0];
    const auto began = clock::now();
    try {
      co_await across_->all_reduce(std::span(&later, 1), mw::max)
          .within(operation_timeout);
      meeting[0] = later;
      meeting[1] = 1;
    } catch (const mw::world_error&) {
      // It is broken, and is formed again beside the steps.
    }
    between_ = std::max<mw::duration>(between_, clock::now() - began);
  }

  void tell() {
    std::printf(
        "rank %d step %llu together %llu jumps %d longest inside %lld between %lld\n",
        rank_, static_cast<unsigned long long>(step_),
        static_cast<unsigned long long>(together_), jumps_,
        static_cast<long long>(inside_ / 1ms), static_cast<long long>(between_ / 1ms));
    inside_ = between_ = {};
  }

  mw::runtime& rt_;
  mw::store& store_;
  const mw::rank_t group_, place_, rank_;
  mw::world* across_ = nullptr;
  std::uint64_t step_ = 0, together_ = 0;
  int jumps_ = 0;
  mw::duration inside_{}, between_{};
};

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const auto job = mw::launch_context::from_environment();
  mw::runtime_options options = job.runtime();
  options.log_from = mw::log_level::error;  // what breaks is told here
  mw::runtime rt(options);
  mw::launch_store store(rt, job);
  member self(rt, store, job);
  return job.run(rt, self.run(), {.drain = 1s});
}
