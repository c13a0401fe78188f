// Workers: a controller drives three processes of this program. Kill one: its step fails
// by name, it comes back with its weights, and the next step is right again.
//
//     workers          // until Ctrl-C; kill -9 or kill -STOP the pids that it prints
//     workers 20 5     // 20 steps, and it kills a worker itself before every fifth
//
// Two on each of several machines, of which this is one. The network is trusted here;
// else give the runtime a secret, and mwnode a file with it:
//
//     workers --nodes 10.0.0.1:7070 2
//     mwnode 10.0.0.1:7070 --node 0 --insecure -- ./workers   // on the first machine
//     mwnode 10.0.0.1:7070 --node 1 --insecure -- ./workers   // on the second one
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <manyworlds/mw.hpp>
#include <manyworlds/spmd.hpp>
#include <string>
#include <vector>
using namespace std::chrono_literals;

namespace {

constexpr int numbers = 3000;

// Lives on workers only: each has its part.
struct weights {
  std::vector<float> part;
};

constexpr mw::remote_function<weights(int)> load{"load", mw::alone};
constexpr mw::remote_function<float(const weights&, float)> step{"step"};

const mw::function_table functions{
    {load,
     [](const mw::worker& me, int count) {
       weights w;
       for (int i = me.rank(); i < count; i += me.size())
         w.part.push_back(static_cast<float>(i % 7));
       return w;
     }},
    {step, [](mw::worker& me, const weights& w, float x) -> mw::task<float> {
       std::vector<float> sum{0};
       for (const float each : w.part) sum[0] += each * x;
       co_await me.world().all_reduce(sum, mw::sum);  // over the workers' own world
       co_return sum[0];
     }}};

float expected(int x) {
  int sum = 0;
  for (int i = 0; i < numbers; ++i) sum += i % 7;
  return static_cast<float>(sum * x);
}

void kill_one(const mw::session& s, int which) {
  const mw::session_worker victim = s.describe(which % static_cast<int>(s.size()));
  if (victim.pid == 0) return;  // it is lost already
  std::printf("killing worker %d (pid %lld)\n", victim.id,
              static_cast<long long>(victim.pid));
  ::kill(static_cast<pid_t>(victim.pid), SIGKILL);
}

/// Replaces the workers that are lost, and says who they are.
mw::task<int> replace_lost(const mw::session& s) {
  int replaced = 0;
  for (const mw::session_worker& each : s.describe()) {
    if (each.state == mw::worker_state::ready) continue;
    const auto begin = std::chrono::steady_clock::now();
    co_await s.respawn(each.id);  // runs `load` again there
    const std::chrono::duration<double, std::milli> took =
        std::chrono::steady_clock::now() - begin;
    const mw::session_worker now = s.describe(each.id);
    std::printf("worker %d: %s; it is pid %lld now, after %.1f ms\n", each.id,
                each.loss.c_str(), static_cast<long long>(now.pid), took.count());
    ++replaced;
  }
  co_return replaced;
}

/// Makes the step with the workers that are there, until it has a result.
mw::task<float> result_of_step(const mw::session& s, const mw::dref<weights>& w, int x,
                               int& replaced) {
  for (;;) {
    try {
      co_return co_await s.call(step, w, x).from(0).within(10s);
    } catch (const mw::call_error& e) {
      std::printf("step %d: %s\n", x, e.what());  // which worker, in which call, and why
    }
    replaced += co_await replace_lost(s);  // what is replayable is made again there
  }
}

/// On which machines the workers are; none: on this one.
struct machines {
  std::string address;
  int count = 0;
};

mw::task<mw::session> start(mw::runtime& rt, const machines& where) {
  if (where.count == 0) {
    co_return co_await mw::session::start(
        rt, mw::processes{.workers = 3, .program = "/proc/self/exe"});
  }
  std::printf("waiting for %d nodes at %s\n", where.count, where.address.c_str());
  co_return co_await mw::session::start(
      rt,
      mw::nodes{.count = where.count, .workers_per_node = 2, .listen = where.address});
}

mw::task<int> drive(mw::runtime& rt, machines where, int steps, int kill_every) {
  mw::session s = co_await start(rt, where);
  for (const mw::session_worker& each : s.describe())
    std::printf("worker %d is pid %lld\n", each.id, static_cast<long long>(each.pid));
  const mw::dref<weights> w = co_await s.call(load, numbers).replayable();
  int wrong = 0;
  int replaced = 0;
  for (int i = 1; steps == 0 || i <= steps; ++i) {
    if (kill_every != 0 && i % kill_every == 0) kill_one(s, i / kill_every);
    const float sum = co_await result_of_step(s, w, i, replaced);
    wrong += sum != expected(i);
    std::printf("step %d: %.0f\n", i, static_cast<double>(sum));
    co_await mw::sleep_for(steps == 0 ? 500ms : 10ms);
  }
  co_await s.close();
  std::printf("%d steps, %d wrong, %d workers replaced\n", steps, wrong, replaced);
  co_return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  // The workers are this program, too.
  if (std::getenv("MANYWORLDS_SESSION") != nullptr)
    return mw::worker_main(functions, count, words);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  machines where;
  mw::runtime_options how;
  std::vector<std::string> given(words + 1, words + count);
  if (given.size() >= 3 && given[0] == "--nodes") {
    where = {given[1], std::atoi(given[2].c_str())};
    how.listen = given[1].substr(0, given[1].rfind(':')) + ":0";
    how.insecure = true;
    // Pids of other machines mean nothing here: it kills none.
    given.resize(std::min<std::size_t>(given.size(), 4));
    given.erase(given.begin(), given.begin() + 3);
  }
  const auto number = [&](std::size_t i) {
    return i < given.size() ? std::atoi(given[i].c_str()) : 0;
  };
  mw::runtime rt(how);
  return rt.run(drive(rt, where, number(0), number(1)));
}
