// A job that mwbench-graph measures with, and what is done to it.
#pragma once

#include <cstdint>
#include <exception>
#include <manyworlds/mpmd.hpp>
#include <manyworlds/mw.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

constexpr auto longest_wait = std::chrono::seconds(60);

struct bench_line {
  std::string mwgraph = "mwgraph";
  std::string folder;
  int kills = 20;
  std::uint32_t processes = 200;
  int seconds = 60;
  bool is_json = false;
};

/// Returns the command by which an instance of this program starts.
std::vector<std::string> own_command(std::vector<std::string> words);
/// Starts a job in the line's folder.
mw::task<mw::job_client> submit(mw::runtime& rt, mw::job_graph graph,
                                const bench_line& line);
/// Waits until all instances are ready, and returns how they stand.
mw::task<mw::job_status> until_ready(mw::job_client& job, std::size_t count);
/// Kills the master of the one job in that folder: it is told by its command line.
void kill_master(const std::string& folder);

/// Measures with a job, and ends it, also where that has failed: nothing else would.
template <class T>
mw::task<T> measured_with(mw::job_client& job, mw::task<T> measuring) {
  std::optional<T> measured;
  std::exception_ptr failed;
  try {
    measured.emplace(co_await std::move(measuring));
  } catch (...) {
    failed = std::current_exception();
  }
  co_await job.stop();
  static_cast<void>(co_await job.until_over());
  if (failed) std::rethrow_exception(failed);
  co_return std::move(*measured);
}

/// What was made of a job's steps while its instances were killed.
struct hurt_steps {
  int kills = 0;
  double part = 0;  ///< of the steps that it makes undisturbed
  std::uint64_t job_restarts = 0;
};

/// Kills random instances, ten a minute, under a policy that starts one again, or all.
mw::task<hurt_steps> steps_under_kills(mw::runtime& rt, const bench_line& line,
                                       bool is_whole_job);

/// The longest time between two exchanges at an edge, in milliseconds.
struct edge_pauses {
  double undisturbed = 0;
  double master_killed = 0;
};

/// Kills masters beside an edge that exchanges each millisecond.
mw::task<edge_pauses> pauses_without_master(mw::runtime& rt, const bench_line& line);
