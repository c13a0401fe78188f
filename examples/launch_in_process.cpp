// A program that starts workers and gets what each of them returns, without a launcher:
// it starts itself, in a group of four, and prints their answers. `launch_in_process
// kill` has rank 2 kill itself once; it alone is started again, and the sum is right.
#include <signal.h>

#include <cstdio>
#include <exception>
#include <manyworlds/launch.hpp>
#include <manyworlds/mw.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace {

/// What one worker does: it adds its part to those of the others.
mw::task<void> add_up(mw::world& w, double& sum) {
  std::vector<double> part(1, w.rank() + 1.0);
  std::vector<double> all(1);
  co_await w.all_reduce(part, all, mw::sum);
  sum = all[0];
}

int work(const mw::launch_context& job, bool must_die) {
  if (must_die && job.rank == 2 && job.incarnation == 1) ::raise(SIGKILL);
  mw::runtime rt(job.runtime());
  mw::launch_store store(rt, job);
  double sum = 0;
  const auto body = [&](mw::world& w) -> mw::task<void> { return add_up(w, sum); };
  const int code = job.run(rt, mw::keep(rt, store, job.world("main"), body));
  job.give_result("rank " + std::to_string(job.rank) + " of " + std::to_string(job.size) +
                  ": the sum is " + std::to_string(sum));
  return code;
}

/// The same program is started as a worker: mwrun's variables tell it apart.
int start(const char* self, bool must_die) {
  mw::launch_options how{.program = self, .workers = 4};
  if (must_die) how.arguments = {"kill"};
  how.scope = mw::restart_scope::worker;
  how.max_restarts = 1;
  how.told = [](std::string_view line) {
    std::printf("%.*s\n", static_cast<int>(line.size()), line.data());
  };
  mw::process_guard guard;  // before any thread: the workers end with this process
  how.guard = &guard;
  mw::runtime rt;
  try {
    const std::vector<std::string> answers = rt.run(mw::launch(rt, how));
    for (const std::string& each : answers) std::puts(each.c_str());
    return 0;
  } catch (const mw::job_error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool must_die = argc > 1 && std::string_view(argv[1]) == "kill";
  try {
    const auto job = mw::launch_context::from_environment();
    if (job.launcher == mw::launcher_kind::mwrun) return work(job, must_die);
    return start(argv[0], must_die);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
