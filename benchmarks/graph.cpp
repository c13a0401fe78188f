// mwbench-graph: what a failure costs a job of roles, and what ten kills a minute leave
// of its steps, beside a restart of the whole job in the same run; what an edge notices
// of a master's death; how long 200 processes take to be up, and 1,000 instances to be
// placed.
//
//     mwbench-graph [--mwgraph FILE] [--kills N] [--seconds N] [--json]
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <manyworlds/mpmd.hpp>
#include <manyworlds/mw.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "graph_job.hpp"
#include "graph_roles.hpp"

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

namespace {

constexpr std::uint32_t workers = 4;
double milliseconds(steady::duration length) {
  return std::chrono::duration<double, std::milli>(length).count();
}

// --- a job that is hurt ---------------------------------------------------------------

struct first_step {
  pid_t pid = 0;
  steady::time_point at;
};

mw::task<first_step> step_of(const std::string& folder, std::uint32_t index,
                             int incarnation) {
  const std::string name = fmt::format("{}/worker.{}.{}", folder, index, incarnation);
  for (const auto until = steady::now() + longest_wait; steady::now() < until;) {
    std::ifstream file(name);
    first_step told;
    steady::rep when = 0;
    if (file >> told.pid >> when) {
      told.at = steady::time_point(steady::duration(when));
      co_return told;
    }
    co_await mw::sleep_for(1ms);
  }
  throw std::runtime_error(name + " was never written");
}

/// Kills a worker again and again, and measures until the job is whole.
mw::task<std::vector<double>> kill_each(std::string folder, int kills,
                                        bool is_whole_job) {
  std::vector<int> incarnations(workers, 1);
  std::vector<first_step> now(workers);
  for (std::uint32_t n = 0; n < workers; ++n) now[n] = co_await step_of(folder, n, 1);
  std::vector<double> took;
  for (int n = 0; n < kills; ++n) {
    // The budget's window is over by then: pauses do not grow from kill to kill.
    co_await mw::sleep_for(700ms);
    const auto victim = static_cast<std::uint32_t>(n) % workers;
    const auto began = steady::now();
    ::kill(now[victim].pid, SIGKILL);
    auto whole = began;
    for (std::uint32_t w = 0; w < workers; ++w) {
      if (!is_whole_job && w != victim) continue;
      now[w] = co_await step_of(folder, w, ++incarnations[w]);
      whole = std::max(whole, now[w].at);
    }
    took.push_back(milliseconds(whole - began));
  }
  co_return took;
}

/// Measures a policy that starts one instance again, or all.
mw::task<std::vector<double>> kill_workers(mw::runtime& rt, const bench_line& line,
                                           bool is_whole_job) {
  const std::string name = is_whole_job ? "whole" : "single";
  const std::string folder = line.folder + "/" + name;
  std::filesystem::create_directories(folder);
  mw::job_graph g(name);
  const std::uint32_t tries = is_whole_job ? 0 : 4096;
  g.role("worker")
      .run(own_command({"step", folder}))
      .count(workers)
      .waits_until_ready()
      .restart(mw::restart_when::on_failure, {tries, 500ms});
  g.whole_job = {4096, 500ms};
  mw::job_client job = co_await submit(rt, g, line);
  std::vector<double> took =
      co_await measured_with(job, kill_each(folder, line.kills, is_whole_job));
  std::sort(took.begin(), took.end());
  co_return took;
}

double quantile(const std::vector<double>& sorted, double part) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<std::size_t>(part * last + 0.5)];
}

// --- many processes -------------------------------------------------------------------

/// Sums the CPU time of the programs that run the job, in ticks.
std::uint64_t ticks_of_job(const std::string& folder) {
  std::uint64_t ticks = 0;
  for (const auto& each : std::filesystem::directory_iterator("/proc")) {
    std::ifstream words(each.path() / "cmdline");
    const std::string line{std::istreambuf_iterator<char>(words), {}};
    if (line.find(folder) == std::string::npos ||
        line.find("mwgraph") == std::string::npos)
      continue;
    std::ifstream file(each.path() / "stat");
    const std::string all{std::istreambuf_iterator<char>(file), {}};
    const std::size_t end = all.rfind(')');
    if (end == std::string::npos) continue;
    std::istringstream fields(all.substr(end + 1));
    std::string skipped;
    std::uint64_t user = 0;
    std::uint64_t kernel = 0;
    for (int n = 3; n < 14; ++n) fields >> skipped;
    fields >> user >> kernel;
    ticks += user + kernel;
  }
  return ticks;
}

struct crowd {
  double up_seconds = 0;
  double idle_core_percent = 0;
  double master_back_ms = 0;
  std::uint64_t restarts = 0;
};

mw::task<crowd> look_at_crowd(mw::job_client& job, const bench_line& line,
                              steady::time_point began) {
  crowd measured;
  mw::job_status now;
  while (now.stage != "running") {
    now = co_await job.status();
    if (now.is_over() || steady::now() - began > longest_wait)
      throw std::runtime_error("the crowd is not up: " + now.why);
    co_await mw::sleep_for(5ms);
  }
  measured.up_seconds = milliseconds(steady::now() - began) / 1e3;
  co_await mw::sleep_for(1s);
  const std::uint64_t before = ticks_of_job(line.folder);
  co_await mw::sleep_for(5s);
  const auto used = static_cast<double>(ticks_of_job(line.folder) - before);
  measured.idle_core_percent =
      used / static_cast<double>(::sysconf(_SC_CLK_TCK)) / 5 * 100;
  const auto killed = steady::now();
  kill_master(line.folder);
  const std::uint64_t term = now.term;
  while (now.term == term) {
    if (steady::now() - killed > longest_wait)
      throw std::runtime_error("no master has followed the one that was killed");
    co_await mw::sleep_for(5ms);
    now = co_await job.status();
  }
  measured.master_back_ms = milliseconds(steady::now() - killed);
  co_await mw::sleep_for(1s);
  now = co_await job.status();
  for (const mw::job_status::instance& each : now.instances)
    measured.restarts += each.incarnation - 1;
  co_return measured;
}

mw::task<crowd> run_crowd(mw::runtime& rt, const bench_line& line) {
  mw::job_graph g("crowd");
  g.role("many").run({"/bin/sleep", "3600"}).count(line.processes);
  const auto began = steady::now();
  mw::job_client job = co_await submit(rt, g, line);
  co_return co_await measured_with(job, look_at_crowd(job, line, began));
}

/// Places that many instances on a tenth of that many nodes.
double time_to_place(std::uint32_t instances) {
  mw::job_graph g("large");
  for (const char* const role : {"a", "b"})
    g.role(role)
        .run({role})
        .count(instances / 2)
        .need({.cpus = 1, .memory = 1 << 20, .gpus = 0, .labels = {}});
  g.place({"a"}, mw::place_rule::spread);
  std::vector<mw::node_resources> nodes(instances / 10);
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    nodes[n].name = fmt::format("n{}", n);
    nodes[n].memory = std::uint64_t{1} << 30;
    nodes[n].cpus = {{0, {}}};
    for (std::uint32_t cpu = 0; cpu < 16; ++cpu) nodes[n].cpus[0].cpus.push_back(cpu);
  }
  const auto wanted = mw::instances_at_start(g);
  std::vector<double> took;
  for (int n = 0; n < 9; ++n) {
    const auto began = steady::now();
    if (mw::place_instances(g, nodes, wanted).size() != wanted.size())
      throw std::runtime_error("not all were placed");
    took.push_back(milliseconds(steady::now() - began));
  }
  std::sort(took.begin(), took.end());
  return quantile(took, 0.5);
}

int measure(const bench_line& line) {
  mw::runtime rt(mw::runtime_options{});
  const auto single = rt.run(kill_workers(rt, line, false));
  const auto whole = rt.run(kill_workers(rt, line, true));
  const hurt_steps kept = rt.run(steps_under_kills(rt, line, false));
  const hurt_steps kept_whole = rt.run(steps_under_kills(rt, line, true));
  const edge_pauses pauses = rt.run(pauses_without_master(rt, line));
  const crowd many = rt.run(run_crowd(rt, line));
  const double placed = time_to_place(1000);
  const double twice_placed = time_to_place(2000);
  if (line.is_json) {
    fmt::print("{}\n", nlohmann::json{{"kill_to_step_p50_ms", quantile(single, 0.5)},
                                      {"kill_to_step_p99_ms", quantile(single, 0.99)},
                                      {"whole_job_p50_ms", quantile(whole, 0.5)},
                                      {"whole_job_p99_ms", quantile(whole, 0.99)},
                                      {"random_kills", kept.kills},
                                      {"steps_kept", kept.part},
                                      {"job_restarts", kept.job_restarts},
                                      {"steps_kept_whole_job", kept_whole.part},
                                      {"pause_ms", pauses.undisturbed},
                                      {"pause_master_killed_ms", pauses.master_killed},
                                      {"processes", line.processes},
                                      {"up_s", many.up_seconds},
                                      {"idle_core_percent", many.idle_core_percent},
                                      {"master_back_ms", many.master_back_ms},
                                      {"restarts", many.restarts},
                                      {"thousand_placed_ms", placed},
                                      {"two_thousand_placed_ms", twice_placed}}
                           .dump());
    return 0;
  }
  fmt::print("kill -9 of one of {} to its next step: p50 {:.0f} ms, p99 {:.0f} ms\n",
             workers, quantile(single, 0.5), quantile(single, 0.99));
  fmt::print("the policy \"restart the job\": p50 {:.0f} ms, p99 {:.0f} ms ({:.1f} x)\n",
             quantile(whole, 0.5), quantile(whole, 0.99),
             quantile(whole, 0.5) / quantile(single, 0.5));
  fmt::print(
      "{} random kills in {} s: {:.0f} % of the undisturbed steps, {} restarts of "
      "the job; the policy \"restart the job\": {:.0f} %\n",
      kept.kills, line.seconds, kept.part * 100, kept.job_restarts,
      kept_whole.part * 100);
  fmt::print(
      "an edge that exchanges each millisecond: longest pause {:.1f} ms; while "
      "the master is killed thrice {:.1f} ms\n",
      pauses.undisturbed, pauses.master_killed);
  fmt::print("{} processes: up after {:.2f} s; idle {:.2f} % of a core\n", line.processes,
             many.up_seconds, many.idle_core_percent);
  fmt::print("the master killed: another one tells after {:.0f} ms, {} restarts\n",
             many.master_back_ms, many.restarts);
  fmt::print("1,000 instances placed on 100 nodes: {:.1f} ms; 2,000 on 200: {:.1f} ms\n",
             placed, twice_placed);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  CLI::App app("What failures cost a job of roles");
  bench_line line;
  std::string path;
  app.add_option("--mwgraph", line.mwgraph, "the program that runs jobs")
      ->capture_default_str();
  app.add_option("--kills", line.kills)->check(CLI::Range(1, 1000));
  app.add_option("--processes", line.processes)->check(CLI::Range(1, 1000));
  app.add_flag("--json", line.is_json);
  app.add_option("--seconds", line.seconds, "the length of the random kills")
      ->check(CLI::Range(3, 3600));
  const auto role = [&](const char* name) {
    auto* const made = app.add_subcommand(name, "an instance, as a job starts it");
    made->add_option("PATH", path);
    return made;
  };
  const auto* const steps = role("step");
  const auto* const generates = role("generate");
  const auto* const trains = role("train");
  const auto* const beats = role("beat");
  CLI11_PARSE(app, count, words);
  if (*steps) return step_once(path);
  if (*generates) return generate();
  if (*trains) return train(path);
  if (*beats) return beat(path);
  line.folder = std::filesystem::temp_directory_path() / "mwbench-graph.XXXXXX";
  if (::mkdtemp(line.folder.data()) == nullptr) return 1;
  int code = 1;
  try {
    code = measure(line);
  } catch (const std::exception& e) {
    fmt::print(stderr, "mwbench-graph: {}\n", e.what());
  }
  // What runs a job may still tell its end there.
  std::error_code ignored;
  for (int n = 0; n < 50 && std::filesystem::exists(line.folder, ignored); ++n) {
    std::filesystem::remove_all(line.folder, ignored);
    std::this_thread::sleep_for(20ms);
  }
  return code;
}
