#include "session.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <cstddef>
#include <stdexcept>
#include <vector>

#include "questions.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

constexpr mw::remote_function<int(int)> give_back{"give_back", mw::alone};
constexpr mw::remote_function<void()> do_nothing{"do_nothing", mw::alone};
constexpr mw::remote_function<std::size_t(std::vector<std::byte>)> count_bytes{
    "count_bytes", mw::alone};
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

mw::task<void> measure(mw::runtime& rt, const session_options& o, int workers,
                       report& out) {
  mw::session s = co_await mw::session::start(
      rt, mw::processes{.workers = workers, .program = "/proc/self/exe"});
  co_await check_sum(s);
  const int count = o.count;
  out.progress(fmt::format("{} workers", workers));
  const samples call =
      co_await times(count, [&](int) -> mw::task<void> { co_await s.call(do_nothing); });
  const samples value = co_await times(count, [&](int i) -> mw::task<void> {
    const int back = co_await s.call(give_back, i).from(0);
    if (back != i) throw std::runtime_error("another value came back");
  });
  const samples sync =
      co_await times(count, [&](int) -> mw::task<void> { co_await s.sync(); });
  // A window has 64 commands: what is issued does not wait.
  constexpr int together = 32;
  const samples issue = co_await times(count / together, [&](int) -> mw::task<void> {
    for (int i = 0; i < together; ++i) co_await s.issue(do_nothing);
  });
  co_await s.sync();
  const std::vector<std::byte> bytes(std::size_t{64} << 10);
  const samples large = co_await times(count / 10, [&](int) -> mw::task<void> {
    (void)co_await s.call(count_bytes, bytes).from(0);
  });
  samples to_error;
  samples to_next;
  for (int i = 0; i < o.kills; ++i) co_await strike(s, to_error, to_next);
  co_await s.close();
  out.row(fields{
      {"bench", "session"},
      {"workers", workers},
      {"calls", count},
      {"issue_us", rounded(issue.median() / together)},
      {"call_us", call.median()},
      {"value_us", value.median()},
      {"value_p99_us", value.p99()},
      {"sync_us", sync.median()},
      {"value_64k_us", large.median()},
      {"kill_to_error_ms", to_error.median()},
      {"kill_to_error_p99_ms", to_error.p99()},
      {"kill_to_next_ms", to_next.median()},
  });
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
      {count_bytes, [](const std::vector<std::byte>& x) { return x.size(); }},
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
