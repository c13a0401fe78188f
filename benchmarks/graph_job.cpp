#include "graph_job.hpp"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>

#include "graph_roles.hpp"

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

namespace {

constexpr std::uint32_t rollouts = 4;
constexpr int kills_per_minute = 10;

/// Counts the stamps from `begin` on, up to `end`.
double stamps_within(const stamps& all, steady::time_point begin,
                     steady::time_point end) {
  return static_cast<double>(std::count_if(
      all.begin(), all.end(), [&](auto at) { return at >= begin && at < end; }));
}

double longest_pause_ms(const stamps& all, steady::time_point begin,
                        steady::time_point end) {
  steady::time_point last = begin;
  steady::duration longest{};
  for (const steady::time_point at : all) {
    if (at < begin) continue;
    longest = std::max(longest, std::min(at, end) - last);
    if (at >= end) break;
    last = at;
  }
  return std::chrono::duration<double, std::milli>(std::max(longest, end - last)).count();
}

mw::job_graph training(const std::string& file, bool is_whole_job) {
  mw::job_graph g(is_whole_job ? "steps-whole" : "steps-single");
  const std::uint32_t tries = is_whole_job ? 0 : 4096;
  g.role("trainer")
      .run(own_command({"train", file}))
      .waits_until_ready()
      .restart(mw::restart_when::on_failure, {tries, 500ms});
  g.role("rollout")
      .run(own_command({"generate"}))
      .count(rollouts)
      .waits_until_ready()
      .restart(mw::restart_when::on_failure, {tries, 500ms});
  g.edge("generate", "trainer", "rollout").calls();
  g.whole_job = {4096, 500ms};
  return g;
}

/// Kills a rollout at a random moment in each part of the time, if there is one then.
mw::task<hurt_steps> hurt(mw::job_client& job, const bench_line& line, std::string file) {
  static_cast<void>(co_await until_ready(job, rollouts + 1));
  const auto length = std::chrono::seconds(line.seconds);
  const auto began = steady::now();
  co_await mw::sleep_for(length / 3);
  const auto hurt_from = steady::now();
  hurt_steps told;
  told.kills = std::max(1, line.seconds * kills_per_minute / 60);
  std::mt19937 drawn(std::random_device{}());
  const auto part =
      std::chrono::duration_cast<std::chrono::milliseconds>(length) / told.kills;
  std::uniform_int_distribution<std::int64_t> moment(0, part.count() - 1);
  for (int n = 0; n < told.kills; ++n) {
    const auto at = hurt_from + n * part + std::chrono::milliseconds(moment(drawn));
    co_await mw::sleep_for(at - steady::now());
    const mw::job_status now = co_await job.status();
    std::vector<pid_t> victims;
    for (const mw::job_status::instance& each : now.instances)
      if (each.id.role == "rollout" && each.pid > 0 && each.state != "ended")
        victims.push_back(static_cast<pid_t>(each.pid));
    if (!victims.empty()) ::kill(victims[drawn() % victims.size()], SIGKILL);
  }
  co_await mw::sleep_for(hurt_from + length - steady::now());
  const auto ended = steady::now();
  told.job_restarts = (co_await job.status()).job_restarts;
  const stamps all = read_stamps(file);
  const auto rate = [&](steady::time_point from, steady::time_point to) {
    return stamps_within(all, from, to) /
           std::chrono::duration<double>(to - from).count();
  };
  told.part = rate(hurt_from, ended) / rate(began, hurt_from);
  co_return told;
}

mw::task<edge_pauses> measure_pauses(mw::job_client& job, const bench_line& line,
                                     std::string file) {
  mw::job_status now = co_await until_ready(job, 2);
  co_await mw::sleep_for(500ms);
  const auto length = std::chrono::milliseconds(line.seconds * 1000) / 12;
  const auto began = steady::now();
  co_await mw::sleep_for(length);
  const auto killed_from = steady::now();
  for (int n = 0; n < 3; ++n) {
    kill_master(line.folder);
    for (const std::uint64_t term = now.term; now.term == term;) {
      if (steady::now() - killed_from > longest_wait)
        throw std::runtime_error("no master has followed the one that was killed");
      co_await mw::sleep_for(5ms);
      now = co_await job.status();
    }
    co_await mw::sleep_for(length / 3);
  }
  const auto ended = steady::now();
  const stamps all = read_stamps(file);
  co_return edge_pauses{longest_pause_ms(all, began, killed_from),
                        longest_pause_ms(all, killed_from, ended)};
}

}  // namespace

std::vector<std::string> own_command(std::vector<std::string> words) {
  words.insert(words.begin(), std::filesystem::read_symlink("/proc/self/exe"));
  return words;
}

mw::task<mw::job_client> submit(mw::runtime& rt, mw::job_graph graph,
                                const bench_line& line) {
  mw::job_client::options options;
  options.folder = line.folder + "/jobs";
  options.program = line.mwgraph;
  mw::job_client job =
      co_await mw::job_client::submit(rt, std::move(graph), std::move(options));
  co_return job;
}

mw::task<mw::job_status> until_ready(mw::job_client& job, std::size_t count) {
  for (const auto until = steady::now() + longest_wait; steady::now() < until;) {
    mw::job_status now = co_await job.status();
    const auto ready = std::count_if(now.instances.begin(), now.instances.end(),
                                     [](const auto& i) { return i.state == "ready"; });
    if (static_cast<std::size_t>(ready) == count) co_return now;
    co_await mw::sleep_for(5ms);
  }
  throw std::runtime_error("the job's instances are not ready in time");
}

void kill_master(const std::string& folder) {
  for (const auto& each : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(each.path() / "cmdline");
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    const bool is_master = line.find(std::string("\0master\0", 8)) != std::string::npos;
    if (is_master && line.find(folder) != std::string::npos)
      ::kill(std::stoi(each.path().filename()), SIGKILL);
  }
}

mw::task<hurt_steps> steps_under_kills(mw::runtime& rt, const bench_line& line,
                                       bool is_whole_job) {
  const std::string file =
      line.folder + (is_whole_job ? "/whole.steps" : "/single.steps");
  mw::job_client job = co_await submit(rt, training(file, is_whole_job), line);
  co_return co_await measured_with(job, hurt(job, line, file));
}

mw::task<edge_pauses> pauses_without_master(mw::runtime& rt, const bench_line& line) {
  const std::string file = line.folder + "/beats";
  mw::job_graph g("beats");
  g.role("left").run(own_command({"beat", file})).waits_until_ready();
  g.role("right").run(own_command({"beat", file})).waits_until_ready();
  g.edge("beat", "left", "right").bulk(mw::pairs);
  mw::job_client job = co_await submit(rt, std::move(g), line);
  co_return co_await measured_with(job, measure_pauses(job, line, file));
}
