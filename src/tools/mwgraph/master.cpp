// mwgraph master: a job's master, which leads or stands by.
#include <fmt/format.h>
#include <signal.h>

#include <memory>
#include <optional>
#include <stdexcept>

#include "link/secret_file.hpp"
#include "manyworlds/store/etcd_store.hpp"
#include "mpmd/etcd_context.hpp"
#include "mpmd/job_leadership.hpp"
#include "mpmd/job_store.hpp"
#include "mpmd/sqlite_context.hpp"
#include "mwgraph/command.hpp"
#include "mwgraph/job_line.hpp"
#include "settle_process.hpp"

namespace mwgraph {

namespace mw = manyworlds;

namespace {

struct master_line {
  job_line job;
  std::string context;
  std::string graph;
  std::size_t nodes = 1;
  std::string listen = "127.0.0.1:0";
};

/// A context, and the seat of the masters that share it.
struct kept_context {
  kept_context(const std::string& where, const std::string& job) {
    if (!mw::detail::is_in_etcd(where)) {
      context = std::make_unique<mw::detail::sqlite_context>(where);
      seat = std::make_unique<mw::detail::host_master_seat>();
      return;
    }
    etcd = std::make_unique<mw::etcd_store>(mw::detail::endpoints_of(where),
                                            mw::detail::graph_store_options(job));
    context = std::make_unique<mw::detail::etcd_context>(*etcd);
    seat = std::make_unique<mw::detail::etcd_master_seat>(*etcd);
  }

  std::unique_ptr<mw::etcd_store> etcd;
  std::unique_ptr<mw::detail::context_store> context;
  std::unique_ptr<mw::detail::master_seat> seat;
};

int lead(const master_line& line) {
  mw::tools::settle_process();
  const job_address job = find_job(line.job);
  std::optional<mw::job_graph> graph;
  if (!line.graph.empty()) graph = read_graph(line.graph);
  const mw::tcp_store_options client = client_of(job);
  mw::runtime_options how;
  how.listen = line.listen;
  how.secret = client.secret;
  how.insecure = line.job.insecure;
  mw::runtime rt(how);
  const auto meeting = mw::detail::open_job_store(rt, job.store, client);
  const kept_context kept(line.context, job.job);
  mw::detail::master_options options;
  options.limits.nodes = line.nodes;
  mw::detail::job_leadership master(rt, *meeting, *kept.context, *kept.seat,
                                    std::move(graph), job.job, std::move(options));
  try {
    static_cast<void>(rt.run(master.run()));
  } catch (const std::invalid_argument& e) {
    throw usage_error(e.what());
  }
  // How the job has ended is told with its status: an exit code of this process would be
  // taken for its own failure.
  return done;
}

}  // namespace

void add_master(CLI::App& app, command& chosen) {
  CLI::App& sub = *app.add_subcommand(
      "master",
      "decide about a job, or stand by while another master does; ends with the job");
  const auto line = std::make_shared<master_line>();
  add_job_line(sub, line->job);
  sub.add_option("--context", line->context,
                 "the file of the job's context (SQLite), or etcd://HOST:PORT[,...] for "
                 "masters on several hosts, of which one leads and the others stand by")
      ->required();
  sub.add_option("--graph", line->graph, "the description of a job that may be new");
  sub.add_option("--nodes", line->nodes, "agents to wait for before anything is placed")
      ->check(CLI::Range(std::size_t{1}, mw::detail::most_nodes))
      ->capture_default_str();
  sub.add_option("--listen", line->listen, "where agents of other machines connect")
      ->capture_default_str();
  sub.callback([line, &chosen] { chosen = [line] { return lead(*line); }; });
}

}  // namespace mwgraph
