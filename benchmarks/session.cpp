#include "session.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "costs.hpp"
#include "questions.hpp"
#include "session_floor.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

constexpr mw::remote_function<int(int)> give_back{"give_back", mw::alone};
constexpr mw::remote_function<void()> do_nothing{"do_nothing", mw::alone};
constexpr mw::remote_function<std::int64_t()> tell_time{"tell_time", mw::alone};
constexpr mw::remote_function<void(std::vector<std::byte>)> take_bytes{"take_bytes",
                                                                       mw::alone};
constexpr mw::remote_function<double()> used_cpu{"used_cpu", mw::alone};
constexpr mw::remote_function<int()> add_up{"add_up"};

/// Runs `each` that often, and gives the time of each.
template <class Each>
mw::task<samples> times(int count, Each each) {
  samples taken;
  for (int i = 0; i < count; ++i) {
    const auto begin = now_ns();
    co_await each(i);
    taken.add(us_since(begin));
  }
  co_return taken;
}

mw::task<void> check_sum(const mw::session& s) {
  const int sum = co_await s.call(add_up).from(0);
  if (sum != static_cast<int>(s.size())) throw std::runtime_error("a worker is missing");
}

/// From the kill of a worker to the error of a call that waits, and to the next right
/// one.
mw::task<void> strike(mw::session& s, samples& to_error, samples& to_next) {
  const int victim = static_cast<int>(s.size()) - 1;
  const auto pid = static_cast<pid_t>(s.describe().back().pid);
  if (pid == 0) throw std::runtime_error("a worker was lost by itself");
  std::int64_t struck = 0;
  auto killing = [&]() -> mw::task<void> {
    co_await mw::sleep_for(std::chrono::milliseconds(2));
    struck = now_ns();
    ::kill(pid, SIGKILL);
  };
  auto calling = [&]() -> mw::task<void> {
    try {
      // Nothing is ready for these: they wait in the collective of one that does not
      // come.
      for (;;) co_await check_sum(s);
    } catch (const mw::call_error&) {
      to_error.add(ms_since(struck));
    }
  };
  co_await mw::when_all(killing(), calling());
  co_await s.respawn(victim);
  co_await check_sum(s);
  to_next.add(ms_since(struck));
}

/// Of 32 calls none waits: a window has 64.
constexpr int together = 32;
constexpr std::size_t large_bytes = std::size_t{64} << 10;
// Long enough for workers to fall asleep, which spin for 50 us.
constexpr auto pause = std::chrono::milliseconds(2);
// As long before a step as an engine knows that it comes.
constexpr auto ahead = std::chrono::microseconds(300);

/// How the workers wait when they are called.
enum class wakefulness { spinning, asleep, alerted };

constexpr const char* name_of(wakefulness w) {
  return w == wakefulness::spinning ? "spinning"
         : w == wakefulness::asleep ? "asleep"
                                    : "alerted";
}

/// From a call to the last worker's first instruction in its function; until all have
/// ended, and until the value of one is there.
struct call_times {
  samples entered;
  samples call;
  samples value;
};

mw::task<call_times> time_calls(mw::session& s, wakefulness how, int count) {
  call_times taken;
  const auto before = [&]() -> mw::task<void> {
    if (how == wakefulness::spinning) co_return;
    co_await mw::sleep_for(pause);
    if (how == wakefulness::asleep) co_return;
    s.alert();
    co_await mw::sleep_for(ahead);
  };
  for (int i = 0; i < count; ++i) {
    co_await before();
    auto begin = now_ns();
    const std::vector<std::int64_t> at = co_await s.call(tell_time).all();
    taken.entered.add(static_cast<double>(std::ranges::max(at) - begin) / 1e3);
    co_await before();
    begin = now_ns();
    co_await s.call(do_nothing);
    taken.call.add(us_since(begin));
    co_await before();
    begin = now_ns();
    const int back = co_await s.call(give_back, i).from(0);
    taken.value.add(us_since(begin));
    if (back != i) throw std::runtime_error("another value came back");
  }
  co_return taken;
}

/// The controller's time for several calls that are issued one behind the other.
mw::task<samples> time_issues(mw::session& s, int count) {
  samples taken;
  for (int i = 0; i < count; ++i) {
    const auto begin = now_ns();
    for (int each = 0; each < together; ++each) co_await s.issue(do_nothing);
    taken.add(us_since(begin));
    co_await s.sync();
  }
  co_return taken;
}

fields row_of(int workers, const char* how, const call_times& taken) {
  return {{"bench", "session"},
          {"workers", workers},
          {"how", how},
          {"entered_us", taken.entered.median()},
          {"call_us", taken.call.median()},
          {"value_us", taken.value.median()},
          {"value_p99_us", taken.value.p99()}};
}

mw::task<void> measure_calls(mw::session& s, const session_options& o, report& out) {
  const int workers = static_cast<int>(s.size());
  for (const auto how :
       {wakefulness::spinning, wakefulness::asleep, wakefulness::alerted}) {
    if (!o.only.empty() && o.only != name_of(how)) continue;
    out.progress(fmt::format("{} workers, {}", workers, name_of(how)));
    const bool spins = how == wakefulness::spinning;
    const call_times taken = co_await time_calls(s, how, spins ? o.count : o.count / 20);
    fields row = row_of(workers, name_of(how), taken);
    if (spins) {
      const samples sync =
          co_await times(o.count, [&](int) -> mw::task<void> { co_await s.sync(); });
      const samples issue = co_await time_issues(s, o.count / together);
      const std::vector<std::byte> bytes(large_bytes);
      const samples large = co_await times(o.count / 10, [&](int) -> mw::task<void> {
        co_await s.call(take_bytes, bytes);
      });
      row["issue_us"] = rounded(issue.median() / together);
      row["sync_us"] = sync.median();
      row["call_64k_us"] = large.median();
    }
    out.row(row);
  }
}

/// The same of a loop over cache lines.
void measure_floor(int workers, const session_options& o, report& out) {
  session_floor floor(workers, large_bytes);
  call_times taken;
  samples issue;
  samples large;
  const auto called = [&](samples& into, bool all) {
    const auto begin = now_ns();
    floor.issue();
    if (all) {
      floor.await_all();
    } else {
      floor.await_first();
    }
    into.add(us_since(begin));
    floor.await_all();
    return begin;
  };
  for (int i = 0; i < o.count; ++i) {
    const auto begin = called(taken.call, true);
    taken.entered.add(static_cast<double>(floor.entered() - begin) / 1e3);
    called(taken.value, false);
    const auto issued = now_ns();
    floor.issue();
    issue.add(us_since(issued));
    floor.await_all();
  }
  for (int i = 0; i < o.count / 10; ++i) {
    const auto begin = now_ns();
    floor.write_payload();
    floor.issue();
    floor.await_all();
    large.add(us_since(begin));
  }
  fields row = row_of(workers, "floor", taken);
  row["issue_us"] = issue.median();
  row["call_64k_us"] = large.median();
  out.row(row);
}

/// A worker of one session is killed again and again; what does another notice?
mw::task<void> measure_losses(mw::session& s, mw::session& other,
                              const session_options& o, report& out) {
  const auto beside = [&](bool& is_over, samples& into) -> mw::task<void> {
    while (!is_over) {
      const auto begin = now_ns();
      (void)co_await other.call(give_back, 1).from(0);
      into.add(us_since(begin));
      co_await mw::sleep_for(std::chrono::microseconds(500));
    }
  };
  samples alone;
  bool is_over = false;
  const auto wait = [&]() -> mw::task<void> {
    co_await mw::sleep_for(std::chrono::milliseconds(500));
    is_over = true;
  };
  co_await mw::when_all(beside(is_over, alone), wait());
  is_over = false;
  samples meanwhile;
  samples to_error;
  samples to_next;
  const auto strikes = [&]() -> mw::task<void> {
    for (int i = 0; i < o.kills; ++i) {
      out.progress(fmt::format("{} workers, kill {}", s.size(), i + 1));
      co_await strike(s, to_error, to_next);
    }
    is_over = true;
  };
  co_await mw::when_all(beside(is_over, meanwhile), strikes());
  out.row({{"bench", "session_loss"},
           {"workers", s.size()},
           {"kills", o.kills},
           {"kill_to_error_ms", to_error.median()},
           {"kill_to_error_p99_ms", to_error.p99()},
           {"kill_to_next_ms", to_next.median()},
           {"other_p99_us", meanwhile.p99()},
           {"other_alone_p99_us", alone.p99()}});
}

/// What a worker costs that is asked for nothing: the busiest one.
mw::task<void> measure_idle(const mw::session& s, const session_options& o, report& out) {
  out.progress(fmt::format("{} workers, idle", s.size()));
  co_await mw::sleep_for(settling);
  const std::vector<double> before = co_await s.call(used_cpu).all();
  const auto begin = now_ns();
  co_await mw::sleep_for(std::chrono::duration_cast<mw::duration>(
      std::chrono::duration<double>(o.idle_seconds)));
  const std::vector<double> after = co_await s.call(used_cpu).all();
  const double took = us_since(begin) / 1e6;
  double most = 0;
  for (std::size_t i = 0; i < after.size(); ++i)
    most = std::max(most, 100 * (after[i] - before[i]) / took);
  out.row({{"bench", "session_idle"},
           {"workers", s.size()},
           {"seconds", o.idle_seconds},
           {"most_cpu_percent", rounded(most)}});
}

mw::task<void> measure(mw::runtime& rt, const session_options& o, int workers,
                       report& out) {
  if (o.only.empty() || o.only == "floor") measure_floor(workers, o, out);
  if (o.only == "floor") co_return;
  mw::session s = co_await mw::session::start(
      rt, mw::processes{.workers = workers, .program = "/proc/self/exe"});
  co_await check_sum(s);
  co_await measure_calls(s, o, out);
  if (o.only.empty()) {
    if (o.idle_seconds > 0) co_await measure_idle(s, o, out);
    mw::session other = co_await mw::session::start(
        rt, mw::processes{.workers = 1, .program = "/proc/self/exe"});
    co_await measure_losses(s, other, o, out);
    co_await other.close();
  }
  co_await s.close();
}

mw::task<void> lead(mw::runtime& rt, const session_options& o, report& out) {
  out.machine(rt.engine());
  for (const std::size_t workers : o.workers)
    co_await measure(rt, o, static_cast<int>(workers), out);
}

}  // namespace

const mw::function_table& session_functions() {
  static const mw::function_table all{
      {give_back, [](int x) { return x; }},
      {do_nothing, [] {}},
      {tell_time, [] { return now_ns(); }},
      {take_bytes, [](const std::vector<std::byte>&) {}},
      {used_cpu, [] { return usage::now().cpu_seconds; }},
      {add_up,
       [](mw::worker& me) -> mw::task<int> {
         std::vector<int> x{1};
         co_await me.world().all_reduce(x, mw::sum);
         co_return x[0];
       }},
  };
  return all;
}

void session(const common_options& common, const session_options& options) {
  mw::runtime rt(runtime_options_of(common));
  report out(common.json, common.transport());
  rt.run(lead(rt, options, out));
}

}  // namespace mwbench
