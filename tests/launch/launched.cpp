// A member of a job, for tests of real launchers: it joins the world of all, does what
// its first argument says, and prints what it is.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <manyworlds/launch.hpp>
#include <manyworlds/mw.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

using namespace std::chrono_literals;

namespace {

/// What a test wants of the member.
struct order {
  std::string what = "sum";
  mw::rank_t rank = 0;
};

mw::task<void> add_up(mw::world& w, const mw::launch_context& job) {
  int total = w.rank() + 1;
  co_await w.all_reduce(std::span(&total, 1), mw::sum);
  std::printf("rank %d of %d, local %d of %d, node %d of %d, %s: the sum is %d\n",
              w.rank(), w.size(), job.local_rank, job.local_size, job.node_rank,
              job.node_count, std::string(name_of(job.launcher)).c_str(), total);
  co_await w.barrier();
}

/// Dies with the world up in the first attempt, as a member of a real job would.
mw::task<void> take_part(mw::world& w, const mw::launch_context& job, const order& o) {
  const bool is_meant = w.rank() == o.rank;
  if (o.what == "die-once" && is_meant && job.attempt == 0) ::kill(::getpid(), SIGKILL);
  if (o.what == "throw" && is_meant)
    throw std::runtime_error("the model cannot be loaded");
  co_await add_up(w, job);
  if (o.what == "wait") {
    std::printf("rank %d waits\n", w.rank());
    co_await mw::sleep_for(60s);
  }
}

}  // namespace

int main(int count, char** words) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  order o;
  if (count > 1) o.what = words[1];
  if (count > 2) o.rank = std::atoi(words[2]);
  const auto job = mw::launch_context::from_environment();
  if (o.what == "die-early" && job.rank == o.rank && job.attempt == 0)
    ::kill(::getpid(), SIGKILL);
  mw::runtime rt(job.runtime());
  mw::launch_store store(rt, job);
  const auto body = [&](mw::world& w) { return take_part(w, job, o); };
  mw::job_options options;
  if (o.what == "wait" && o.rank > 0) options.code_of_signal = o.rank;
  if (o.what == "fail-at-once" && job.rank == o.rank) return 9;
  return job.run(rt, mw::keep(rt, store, job.world("main"), body), options);
}
