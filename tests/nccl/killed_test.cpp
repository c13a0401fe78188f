// Members of GPU worlds that are killed or stopped: they are processes.
#include <signal.h>

#include <optional>

#include "freeing_thread.hpp"
#include "gpu_worlds.hpp"
#include "support/sanitizers.hpp"

using namespace manyworlds;
using namespace manyworlds::nccl_tests;

namespace {

using floats = std::vector<float>;

/// From a death to the error at a member with its application in cudaFree: some 10 ms on
/// a GPU. It is less than any silence takes to be suspicious.
constexpr duration heard_within =
    testing::has_address_sanitizer || testing::has_thread_sanitizer ? 5s : 1s;

/// The second member, which never enters a collective unless its world was replaced.
task<void> be_victim(member& m, world_options options) {
  world w(m.rt, m.st, options);
  co_await w;
  co_await w.device_ready();
  if (w.epoch() == 1) co_await w.broken();
  auto x = co_await m.on_device(floats(1000, 2));
  co_await w.all_reduce(x, sum);
  co_await w.leave();
}

/// The first member, with the others in processes that are made as they are needed.
class survivor {
 public:
  explicit survivor(int signal, bool frees_memory = false)
      : signal_(signal), frees_memory_(frees_memory), meeting_(rt_, "127.0.0.1:0") {}

  void run(world_options base) {
    const auto lives = [&](member& m, world_options options) -> task<void> {
      co_await outlive(m, options);
    };
    base.size = 2;
    start();
    run_member(0, lives, base, {}, nullptr, meeting_.address());
    CHECK(other_->succeeded());
  }

 private:
  void start() { other_ = start_rank(1, 2, meeting_); }

  task<void> outlive(member& m, world_options options) {
    world_options of_one = options;
    of_one.name = "beside";
    of_one.size = 1;
    world beside(m.rt, m.st, of_one);
    world w(m.rt, m.st, options);
    co_await beside;
    co_await w;
    co_await w.device_ready();
    auto x = co_await m.on_device(floats(1000, 1));
    auto y = co_await m.on_device(floats(1000, 3));
    std::optional<testing::freeing_thread> application;
    if (frees_memory_) application.emplace();

    // On the stream, waiting in its kernel for the other.
    const ticket hung = co_await w.all_reduce(x, sum).unmatched().enqueue();
    if (application) {
      application->begin();
      // The device is not idle before the world is broken.
      CHECK_FALSE(application->has_ended_after(100ms));
    }
    const auto struck = clock::now();
    ::kill(other_->pid(), signal_);
    const auto expected = signal_ == SIGKILL ? cause::peer_died : cause::silent_peer;
    if (application) {
      CHECK((co_await w.broken()).cause == expected);
      CHECK(clock::now() - struck < heard_within);
    }
    const auto ended = co_await outcome(w.settled(hung));
    REQUIRE_FALSE(ended);
    CHECK(ended.error().cause == expected);
    CHECK(ended.error().rank == 1);
    co_await beside.all_reduce(y, sum);

    // Law 4: what is written now stays.
    co_await w.drained();
    if (application) CHECK(application->has_ended_after(20s));
    const floats fives(1000, 5);
    co_await copy(x.view(), fives);
    CHECK((co_await m.read(x)) == fives);
    CHECK((co_await m.read(y)) == floats(1000, 3));

    other_.reset();
    start();
    w = co_await w.reform();
    co_await w.all_reduce(x, sum);
    CHECK((co_await m.read(x)) == floats(1000, 7));
    co_await w.leave();
    co_await beside.leave();
  }

  const int signal_;
  const bool frees_memory_;
  runtime rt_;
  const hosted_store meeting_;
  std::unique_ptr<testing::own_process> other_;
};

void check_fault(int signal, world_options base, bool frees_memory = false) {
  if (testing::skips_without_device()) return;
  if (rank_process::here()) {
    run_members(2, be_victim, base);
  } else {
    survivor(signal, frees_memory).run(base);
  }
}

}  // namespace

TEST_SUITE("gpu worlds of processes") {
  TEST_CASE(
      "law 4: who waits for a killed member in NCCL's kernel has the cause and the "
      "buffers, and the next epoch serves") {
    check_fault(SIGKILL, {});
  }

  // With EMULATED_CUDA_DRIVER_LOCK, and on a GPU, every call to CUDA now blocks until the
  // kernel ends that waits for the dead member.
  TEST_CASE(
      "law 2: a thread of the application that waits in cudaFree keeps no world from "
      "hearing of a death") {
    check_fault(SIGKILL, {}, true);
  }

  TEST_CASE(
      "law 2: a thread that waits in cudaFree keeps no world that completes by events "
      "from hearing of a death") {
    world_options base;
    base.on_device.completion = completion_by::events;
    check_fault(SIGKILL, base, true);
  }

  TEST_CASE("law 4: the same of a member that was stopped") {
    world_options base;
    base.suspect_after = 300ms;
    base.broken_after = 1s;
    check_fault(SIGSTOP, base);
  }
}
