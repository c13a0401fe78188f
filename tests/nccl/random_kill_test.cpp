// A member of a GPU world that is killed at random moments of its life, again and again.
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <random>

#include "gpu_worlds.hpp"

using namespace manyworlds;
using namespace manyworlds::nccl_tests;

namespace {

using floats = std::vector<float>;

/// How many members are killed, and the seed of the moments. Of 128 creations that not
/// all members came to NCCL still holds the roots: more kills than that want another
/// process.
int kills_here() { return std::atoi(setting("MANYWORLDS_TEST_KILLS", "40").c_str()); }
std::uint32_t seed_here() {
  return static_cast<std::uint32_t>(
      std::atoi(setting("MANYWORLDS_TEST_KILL_SEED", "1").c_str()));
}

/// The world from its making to its end: formed, its communicator made, launched on, in
/// flight, left. Tells when it has served: all but left.
template <class Served>
task<void> live_once(member& m, world_options options, Served served) {
  world w(m.rt, m.st, std::move(options));
  const auto whole = [&]() -> task<void> {
    co_await w;
    auto x = co_await m.on_device(floats(1000, 0));
    for (int i = 0; i < 4; ++i) {
      const floats mine(1000, static_cast<float>(w.rank() + 1));
      co_await copy(x.view(), mine);
      co_await w.all_reduce(x, sum);
      CHECK((co_await m.read(x)) == floats(1000, 3));
    }
    served();
    co_await w.leave();
  };
  const auto ended = co_await outcome(whole());
  if (ended) co_return;
  // All that the loss of the other member may be called. Neither its death nor its moment
  // may lose this member's buffers, its device or a communicator.
  constexpr std::array losses{cause::peer_died, cause::connection_lost, cause::replaced,
                              cause::closed,    cause::rank_taken,      cause::abandoned};
  const failure& why = ended.error();
  CAPTURE(why.text());
  REQUIRE(std::find(losses.begin(), losses.end(), why.cause) != losses.end());
  if (w.state() == world_state::broken) co_await w.drained();
}

/// Until it is killed.
task<void> live_until_killed(member& m, world_options options) {
  for (;;) co_await live_once(m, options, [] {});
}

class killer {
 public:
  explicit killer(int kills) : kills_(kills), meeting_(rt_, "127.0.0.1:0") {}

  void run() {
    world_options base;
    base.size = 2;
    const auto lives = [&](member& m, world_options options) -> task<void> {
      co_await survive(m, options);
    };
    run_member(0, lives, base, {}, nullptr, meeting_.address(), kills_ * 1s + patience);
  }

 private:
  void start_victim() {
    victim_.reset();
    victim_ = start_rank(1, 2, meeting_);
  }

  task<void> survive(member& m, world_options options) {
    world_options of_one = options;
    of_one.name = "beside";
    of_one.size = 1;
    world beside(m.rt, m.st, of_one);
    co_await beside;
    co_await beside.device_ready();
    const auto with_victim = [&]() -> task<void> {
      while (!done_) co_await live_once(m, options, [this] { served_.set(); });
    };
    co_await when_all(with_victim(), kill_all(m, beside));
    co_await beside.leave();
  }

  /// Each is killed within the time that one took from its start to its first sums, and
  /// half of it more; after each the next one serves.
  task<void> kill_all(member& m, world& beside) {
    auto x = co_await m.on_device(floats(1000, 1));
    std::mt19937 random(seed_here());
    const auto begun = clock::now();
    start_victim();
    co_await serves();
    const auto life = (clock::now() - begun) * 3 / 2;
    const auto span = std::chrono::duration_cast<std::chrono::microseconds>(life);
    std::uniform_int_distribution<std::int64_t> moment(0, span.count());
    for (int i = 0; i < kills_; ++i) {
      CAPTURE(i);
      start_victim();
      // The moment is what is tried, and waits for nothing.
      co_await sleep_for(std::chrono::microseconds(moment(random)));
      ::kill(victim_->pid(), SIGKILL);
      // Law 2: the world beside goes on, whatever is made of the other.
      co_await beside.all_reduce(x, sum).within(30s);
      if (i % 4 == 3) {
        start_victim();
        co_await serves();
      }
    }
    start_victim();
    co_await serves();
    done_ = true;
  }

  /// Ends when the newest member has served. Of the one before it the end of one life may
  /// be told after its kill, so that only the second is surely the newest one's.
  task<void> serves() {
    for (int i = 0; i < 2; ++i) {
      served_.reset();
      co_await within(served_.wait(), 30s);
    }
  }

  const int kills_;
  runtime rt_;
  const hosted_store meeting_;
  std::unique_ptr<testing::own_process> victim_;
  event served_;
  bool done_ = false;
};

}  // namespace

TEST_SUITE("gpu worlds of processes") {
  TEST_CASE(
      "a member killed at random moments blocks no other member, and its replacement "
      "serves") {
    if (testing::skips_without_device()) return;
    if (rank_process::here()) {
      run_members(2, live_until_killed);
    } else {
      testing::keeps_roots = true;
      killer(kills_here()).run();
    }
  }
}
