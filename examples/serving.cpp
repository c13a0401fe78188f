// A job as a graph of roles: a router asks two instances of prefill, which send the pages
// of their attention to two instances of decode, layer by layer. On the way a decode and
// the job's master are killed. Nothing else is started again, and the tokens are those of
// one process.
//
//     serving                      // needs mwgraph along PATH, or --mwgraph FILE
//     mwgraph run serving.toml     // the same job from a file: kill what you like
//
// With --json it prints one object, and nothing else.
#include <fmt/format.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <manyworlds/mpmd.hpp>
#include <manyworlds/mw.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <thread>

#include "serving/roles.hpp"

namespace {

struct demo_line {
  std::string mwgraph = "mwgraph";
  std::uint64_t requests = 400;
  bool is_json = false;
};

// --- an instance ----------------------------------------------------------------------

template <class Role, class... Arguments>
int play(Arguments... arguments) {
  mw::role_context self;
  mw::runtime rt(self.runtime());
  Role role(self, arguments...);
  const auto body = [&](mw::scope& s) { return role.run(s); };
  return self.run(rt, body);
}

// --- the whole ------------------------------------------------------------------------

mw::job_graph graph_of(const std::string& own, const demo_line& line,
                       const std::string& result) {
  mw::job_graph g("serving");
  g.role("router")
      .run({own, "router", std::to_string(line.requests), result})
      .waits_until_ready()
      .driver();
  g.role("prefill").run({own, "prefill"}).count(2).waits_until_ready();
  g.role("decode").run({own, "decode"}).count(1, 2, 2).waits_until_ready();
  g.edge("kv", "prefill", "decode").bulk(mw::pairs);
  g.edge("prompts", "router", "prefill").calls();
  g.edge("answers", "router", "decode").calls();
  return g;
}

const mw::job_status::instance* find(const mw::job_status& of, const std::string& role,
                                     std::uint32_t index) {
  for (const mw::job_status::instance& each : of.instances)
    if (each.id == mw::instance_id{role, index}) return &each;
  return nullptr;
}

/// Waits until the router has answered that many.
mw::task<mw::job_status> until_answered(mw::job_client& job, std::uint64_t count) {
  for (const auto end = std::chrono::steady_clock::now() + 60s;
       std::chrono::steady_clock::now() < end;) {
    mw::job_status now = co_await job.status();
    const mw::job_status::instance* const router = find(now, "router", 0);
    if (now.is_over() || (router != nullptr && router->steps >= count)) co_return now;
    co_await mw::sleep_for(20ms);
  }
  throw std::runtime_error("the router has not answered enough in 60 s");
}

/// The master's process is told by its command line, and not by the job.
void kill_master(const std::string& folder) {
  for (const auto& each : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(each.path() / "cmdline");
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    const bool is_master = line.find(std::string("\0master\0", 8)) != std::string::npos;
    if (is_master && line.find(folder) != std::string::npos)
      ::kill(std::stoi(each.path().filename()), SIGKILL);
  }
}

struct told {
  nlohmann::json result;
  std::uint64_t restarted = 0;
  std::uint64_t untouched = 0;
  std::uint64_t job_restarts = 0;
  int exit_code = 1;
  std::string why;
};

mw::task<void> hurt(mw::job_client& job, const demo_line& line,
                    const std::string& folder) {
  const auto say = [&](const std::string& text) {
    if (!line.is_json) fmt::print("{}\n", text);
  };
  const mw::job_status before = co_await until_answered(job, line.requests / 4);
  if (const auto* const decode = find(before, "decode", 1)) {
    say(fmt::format("kill -9 {}: decode.1", decode->pid));
    ::kill(static_cast<pid_t>(decode->pid), SIGKILL);
  }
  static_cast<void>(co_await until_answered(job, line.requests / 2));
  say("kill -9 the master");
  kill_master(folder);
}

mw::task<told> run_and_hurt(mw::runtime& rt, const demo_line& line,
                            const std::string& folder) {
  const std::string own = std::filesystem::read_symlink("/proc/self/exe");
  const std::string result = folder + "/result.json";
  mw::job_client::options options;
  options.folder = folder + "/jobs";
  options.program = line.mwgraph;
  mw::job_graph graph = graph_of(own, line, result);
  mw::job_client job = co_await mw::job_client::submit(rt, std::move(graph), options);
  std::exception_ptr failed;
  try {
    co_await hurt(job, line, folder);
  } catch (...) {
    failed = std::current_exception();
  }
  // Nothing else would end a job that was started.
  if (failed) co_await job.stop("the demonstration has failed");
  const mw::job_status end = co_await job.until_over();
  if (failed) std::rethrow_exception(failed);
  told all;
  for (const mw::job_status::instance& each : end.instances) {
    const bool is_first = each.incarnation == 1;
    all.untouched += is_first ? 1 : 0;
    all.restarted += is_first ? 0 : each.incarnation - 1;
  }
  all.job_restarts = end.job_restarts;
  all.exit_code = end.exit_code;
  all.why = end.why;
  std::ifstream file(result);
  all.result = nlohmann::json::parse(file, nullptr, false);
  co_return all;
}

int demo(const demo_line& line) {
  std::string folder = (std::filesystem::temp_directory_path() / "serving.XXXXXX");
  if (::mkdtemp(folder.data()) == nullptr) {
    fmt::print(stderr, "no folder can be made at {}\n", folder);
    return 1;
  }
  told all;
  try {
    mw::runtime rt(mw::runtime_options{});
    all = rt.run(run_and_hurt(rt, line, folder));
  } catch (const std::exception& e) {
    all.why = e.what();
  }
  // What runs a job may still tell its end there.
  std::error_code ignored;
  for (int n = 0; n < 50 && std::filesystem::exists(folder, ignored); ++n) {
    std::filesystem::remove_all(folder, ignored);
    std::this_thread::sleep_for(20ms);
  }
  if (!all.result.is_object()) {
    fmt::print(stderr, "there is no result: {}\n", all.why);
    return 1;
  }
  all.result["restarted"] = all.restarted;
  all.result["untouched"] = all.untouched;
  all.result["job_restarts"] = all.job_restarts;
  const bool is_right = all.exit_code == 0 && all.result["lost"] == 0 &&
                        all.result["wrong"] == 0 && all.restarted == 1 &&
                        all.untouched == 4;
  if (line.is_json) {
    fmt::print("{}\n", all.result.dump());
  } else {
    fmt::print(
        "{} requests: {} lost, {} wrong, {} tried again; {} instance started again, {} "
        "untouched; longest pause {} ms\n",
        all.result["requests"].dump(), all.result["lost"].dump(),
        all.result["wrong"].dump(), all.result["tried_again"].dump(), all.restarted,
        all.untouched, all.result["longest_pause_ms"].dump());
  }
  return is_right ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  CLI::App app("A job as a graph of roles, of which a decode and the master are killed");
  demo_line line;
  std::uint64_t requests = 0;
  std::string result;
  app.add_option("--mwgraph", line.mwgraph, "the program that runs jobs")
      ->capture_default_str();
  app.add_option("--requests", line.requests)->check(CLI::Range(20, 100000));
  app.add_flag("--json", line.is_json);
  auto* const prefill = app.add_subcommand("prefill", "an instance, as a job starts it");
  auto* const decode = app.add_subcommand("decode", "an instance, as a job starts it");
  auto* const router = app.add_subcommand("router", "an instance, as a job starts it");
  router->add_option("REQUESTS", requests)->required();
  router->add_option("RESULT", result)->required();
  CLI11_PARSE(app, count, words);
  if (*prefill) return play<prefill_role>();
  if (*decode) return play<decode_role>();
  if (*router) return play<router_role>(requests, result);
  return demo(line);
}
