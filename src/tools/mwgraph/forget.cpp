// mwgraph forget: erases what a job that is over has left in etcd.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/store/etcd_store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "mpmd/etcd_context.hpp"
#include "mpmd/job_remains.hpp"
#include "mpmd/job_store.hpp"
#include "mwgraph/command.hpp"

namespace mwgraph {

namespace mw = manyworlds;
using mw::detail::remains_state;

namespace {

constexpr mw::duration between_tries = std::chrono::milliseconds(200);
// Masters that stand by read how the job has ended, each in a term of its own.
constexpr int most_tries = 150;

struct forget_line {
  std::string job;
  std::string store;
  std::string context;
};

std::string endpoints(const char* option, const std::string& where) {
  if (!mw::detail::is_in_etcd(where))
    throw usage_error(fmt::format("{}: etcd://HOST:PORT is expected", option));
  return mw::detail::endpoints_of(where);
}

/// Erases as soon as no master keeps it from that.
mw::task<int> forget(const forget_line& line) {
  const std::string& where = line.context.empty() ? line.store : line.context;
  mw::etcd_store meeting(endpoints("--store", line.store),
                         mw::detail::meeting_of_job_options(line.job));
  mw::etcd_store context(endpoints("--context", where),
                         mw::detail::graph_store_options(line.job));
  for (int tries = 0; tries < most_tries; ++tries) {
    const auto erased = co_await mw::detail::erase_job_remains(context, meeting);
    if (erased.state == remains_state::not_over) {
      fmt::print(stderr, "mwgraph: \"{}\" is not over (mwgraph stop, mwgraph wait)\n",
                 line.job);
      co_return has_failed;
    }
    if (erased.state == remains_state::erased) {
      print(fmt::format("{}: {} erased\n", line.job, counted(erased.keys, "key")));
      co_return done;
    }
    co_await mw::sleep_for(between_tries);
  }
  fmt::print(stderr, "mwgraph: a master of \"{}\" still has its seat\n", line.job);
  co_return has_failed;
}

}  // namespace

void add_forget(CLI::App& app, command& chosen) {
  CLI::App& sub = *app.add_subcommand(
      "forget", "erase what a job that is over has left in etcd, its end included");
  const auto line = std::make_shared<forget_line>();
  sub.add_option("JOB", line->job, "the job's name")->required();
  sub.add_option("--store", line->store, "the job's meeting store: etcd://HOST:PORT")
      ->required();
  sub.add_option("--context", line->context,
                 "the etcd of its context, if that is another one");
  sub.callback([line, &chosen] {
    chosen = [line] {
      mw::runtime rt(mw::runtime_options{});
      return rt.run(forget(*line));
    };
  });
}

}  // namespace mwgraph
