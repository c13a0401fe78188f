// mwgraph agent: starts, watches and ends a job's instances on this machine.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>

#include "launch/environment_variables.hpp"
#include "launch/own_address.hpp"
#include "launch/variable_reader.hpp"
#include "link/secret_file.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/io/signals.hpp"
#include "manyworlds/launch/process_guard.hpp"
#include "mpmd/job_agent.hpp"
#include "mpmd/job_store.hpp"
#include "mwgraph/command.hpp"
#include "mwgraph/job_line.hpp"
#include "settle_process.hpp"

namespace mwgraph {

namespace mw = manyworlds;

namespace {

// The name of the service that its workloads find it by holds it.
constexpr std::size_t longest_node = 40;

bool may_stand_in_node(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         c == '-' || c == '_' || c == '.';
}

struct agent_line {
  job_line job;
  std::string node;
  std::string devices;
  std::string interface;
  std::string logs;
};

std::string name_of_machine() {
  std::array<char, 65> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "node";
  const std::string all = name.data();
  return all.substr(0, all.find('.'));
}

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw usage_error(fmt::format("{} cannot be read", path));
  return {std::istreambuf_iterator<char>(file), {}};
}

void declare(mw::node_resources& node, const std::string& file) {
  try {
    node.declare(text_of_file(file));
  } catch (const std::invalid_argument& e) {
    throw usage_error(fmt::format("{}: {}", file, e.what()));
  }
}

mw::node_resources resources_of(const agent_line& line) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::optional<std::string_view> limited;
  if (visible != nullptr) limited = visible;
  mw::node_resources here = mw::node_resources::of_this_machine(line.node, limited);
  if (line.devices.empty()) return here;
  declare(here, line.devices);
  here.name = line.node;
  return here;
}

mw::runtime_options runtime_of(const agent_line& line, const job_address& job) {
  mw::launch_context way;
  way.size = 2;
  way.store = mw::detail::way_to(job.store);
  way.interface = line.interface;
  mw::socket_address own;
  try {
    own = mw::detail::own_address(way);
  } catch (const mw::launch_error& e) {
    throw usage_error(fmt::format("--interface: {}", e.what()));
  }
  mw::runtime_options how;
  how.listen = own.with_port(0).text();
  how.insecure = line.job.insecure;
  how.secret = client_of(job).secret;
  if (!own.is_loopback() && how.secret.empty() && !line.job.insecure)
    throw usage_error(fmt::format(
        "--secret-file: it is missing, since others reach this node at {} (or "
        "--insecure, if the network is trusted)",
        how.listen.view()));
  return how;
}

int serve(const agent_line& line) {
  mw::tools::settle_process();
  if (line.node.empty() || line.node.size() > longest_node)
    throw usage_error(fmt::format("--node: a name has 1 to {} bytes", longest_node));
  if (!std::all_of(line.node.begin(), line.node.end(), may_stand_in_node))
    throw usage_error("--node: a name has letters, digits, '-', '_' and '.'");
  const job_address job = find_job(line.job);
  const mw::runtime_options how = runtime_of(line, job);
  mw::node_resources here = resources_of(line);
  if (here.address.empty()) here.address = mw::detail::host_of(how.listen.view());
  // What a workload has started ends too when this process is killed.
  mw::process_guard guard;
  auto told_to_end = mw::until_signal({SIGTERM, SIGINT});
  mw::runtime rt(how);
  const auto meeting = mw::detail::open_job_store(rt, job.store, client_of(job));
  mw::detail::agent_place place;
  place.job = job.job;
  place.node = line.node;
  place.store = job.store;
  if (!job.secret_file.empty())
    place.secret_file = std::filesystem::absolute(job.secret_file);
  place.insecure = line.job.insecure;
  // A role of one instance would not know that others of the job are elsewhere.
  const auto own = mw::socket_address::parse(how.listen.view());
  const bool is_inherited = std::getenv("MANYWORLDS_INTERFACE") != nullptr;
  place.interface = line.interface;
  if (line.interface.empty() && !is_inherited && own && !own->is_loopback())
    place.interface = mw::detail::host_of(how.listen.view());
  place.log_folder = line.logs;
  place.guard = &guard;
  place.inherited = mw::detail::variables_of_this_process();
  mw::detail::job_agent agent(rt, *meeting, std::move(here), std::move(place));
  int order = 0;
  auto obey = [&](mw::task<mw::received_signal> came) -> mw::task<void> {
    order = (co_await std::move(came)).number;
    agent.end();
  };
  auto all = [&]() -> mw::task<void> {
    co_await mw::scope::run([&](mw::scope& s) -> mw::task<void> {
      s.spawn(obey(std::move(told_to_end)));
      co_await agent.run();
      s.cancel();
    });
  };
  rt.run(all());
  return order == 0 ? done : 128 + order;
}

}  // namespace

void check_devices(const std::string& file) {
  mw::node_resources any;
  if (!file.empty()) declare(any, file);
}

void add_agent(CLI::App& app, command& chosen) {
  CLI::App& sub = *app.add_subcommand(
      "agent", "start, watch and end a job's instances on this machine");
  const auto line = std::make_shared<agent_line>();
  line->node = name_of_machine();
  add_job_line(sub, line->job);
  sub.add_option("--node", line->node, "this node's name")->capture_default_str();
  sub.add_option("--devices", line->devices,
                 "a file of JSON that declares what this node has, in place of what is "
                 "found");
  sub.add_option("--interface", line->interface,
                 "the interface or address where others reach this node, in place of the "
                 "one that leads to the store");
  sub.add_option("--log-dir", line->logs,
                 "a folder, with files for each incarnation's output and error, in place "
                 "of the own output");
  sub.callback([line, &chosen] { chosen = [line] { return serve(*line); }; });
}

}  // namespace mwgraph
