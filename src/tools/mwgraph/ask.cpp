// mwgraph status, events, wait, stop: what is asked of a job, and told to it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/store/store_error.hpp"
#include "mwgraph/command.hpp"
#include "mwgraph/job_line.hpp"
#include "mwgraph/job_watch.hpp"

namespace mwgraph {

namespace mw = manyworlds;
using mw::detail::job_meeting;

namespace {

constexpr mw::duration between_looks = std::chrono::milliseconds(100);
constexpr mw::duration patience_with_store = std::chrono::minutes(1);

struct status_line {
  job_line job;
  bool is_json = false;
  bool watches = false;
};

mw::task<std::optional<std::string>> ask_in_time(const status_source& source) {
  const auto end = std::chrono::steady_clock::now() + patience_with_store;
  for (;;) {
    try {
      std::optional<std::string> told = co_await source();
      co_return told;
    } catch (const mw::store_error& e) {
      const bool may_come = e.kind() == mw::store_error_kind::unreachable;
      if (!may_come || std::chrono::steady_clock::now() > end) throw;
    }
    co_await mw::sleep_for(between_looks);
  }
}

/// Those who watch bear a store that is away for a while (law G-c). That of a job of this
/// machine does not come again.
status_source for_long(status_source source, const job_line& line) {
  if (line.store.empty()) return source;
  return [source = std::move(source)] { return ask_in_time(source); };
}

mw::task<int> tell_status(status_source source, const status_line& line) {
  for (;;) {
    const auto status = co_await status_of(source);
    if (!status) {
      fmt::print(stderr, "mwgraph: no master has told how \"{}\" stands yet\n",
                 line.job.job);
      if (!line.watches) co_return has_failed;
    } else if (line.is_json) {
      print(status->dump() + "\n");
    } else {
      // A terminal is cleared, so that the table stays in its place.
      print((line.watches ? "\x1b[H\x1b[2J" : "") + table_of(*status));
    }
    if (!line.watches || (status && is_over(*status))) co_return done;
    co_await mw::sleep_for(std::chrono::seconds(1));
  }
}

mw::task<int> tell_events(status_source source, bool follows) {
  event_reader reader;
  for (;;) {
    const auto status = co_await status_of(source);
    if (status)
      for (const std::string& each : reader.news(*status)) print(each + "\n");
    if (!follows || (status && is_over(*status))) co_return done;
    co_await mw::sleep_for(between_looks);
  }
}

mw::task<int> wait_for_end(status_source source) {
  for (;;) {
    const auto status = co_await status_of(source);
    if (status && is_over(*status)) co_return status->value("exit_code", has_failed);
    co_await mw::sleep_for(between_looks);
  }
}

mw::task<int> stop_job(job_meeting& meeting) {
  co_await meeting.ask_to_stop("mwgraph stop");
  co_return done;
}

/// What is over has nothing to stop, also where it has ended just now.
int stop(const job_line& line) {
  if (end_of(line)) return done;
  try {
    return ask_job(line, stop_job);
  } catch (const std::exception&) {
    if (!end_of(line)) throw;
    return done;
  }
}

}  // namespace

void add_status(CLI::App& app, command& chosen) {
  CLI::App& sub = *app.add_subcommand("status", "say how a job stands");
  const auto line = std::make_shared<status_line>();
  add_job_line(sub, line->job);
  sub.add_flag("--json", line->is_json, "all of it, as JSON on one line");
  sub.add_flag("--watch", line->watches, "again each second, until the job is over");
  sub.callback([line, &chosen] {
    chosen = [line] {
      return ask_status(line->job, [line](status_source source) {
        if (line->watches) source = for_long(std::move(source), line->job);
        return tell_status(std::move(source), *line);
      });
    };
  });
}

void add_events(CLI::App& app, command& chosen) {
  CLI::App& sub = *app.add_subcommand("events", "say what has happened");
  const auto line = std::make_shared<job_line>();
  const auto follows = std::make_shared<bool>(false);
  add_job_line(sub, *line);
  sub.add_flag("--follow", *follows, "and what will, until the job is over");
  sub.callback([line, follows, &chosen] {
    chosen = [line, follows] {
      return ask_status(*line, [line, follows](status_source source) {
        if (*follows) source = for_long(std::move(source), *line);
        return tell_events(std::move(source), *follows);
      });
    };
  });
}

void add_wait(CLI::App& app, command& chosen) {
  CLI::App& sub =
      *app.add_subcommand("wait", "wait for a job's end; its exit code is the job's");
  const auto line = std::make_shared<job_line>();
  add_job_line(sub, *line);
  sub.callback([line, &chosen] {
    chosen = [line] {
      return ask_status(*line, [line](status_source source) {
        return wait_for_end(for_long(std::move(source), *line));
      });
    };
  });
}

void add_stop(CLI::App& app, command& chosen) {
  CLI::App& sub = *app.add_subcommand("stop", "tell a job to end; see also wait");
  const auto line = std::make_shared<job_line>();
  add_job_line(sub, *line);
  sub.callback([line, &chosen] { chosen = [line] { return stop(*line); }; });
}

}  // namespace mwgraph
