// mwgraph run, start: a job on this machine, attached to its terminal or on its own.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>

#include "io/descriptor.hpp"
#include "mpmd/job_master.hpp"
#include "mwgraph/command.hpp"
#include "mwgraph/job_folder.hpp"
#include "mwgraph/supervisor.hpp"
#include "settle_process.hpp"

namespace mwgraph {

namespace mw = manyworlds;

namespace {

struct run_line {
  std::string file;
  std::string folder;
  supervisor_options options;
};

void add_run_options(CLI::App& sub, run_line& line) {
  add_file(sub, line.file);
  sub.add_option("--folder", line.folder,
                 "where jobs of this machine leave what finds them");
  sub.add_option("--devices", line.options.devices,
                 "a file of JSON that declares what this machine has");
  sub.add_option("--log-dir", line.options.logs,
                 "a folder for the instances' output, in place of the job's own");
  sub.add_option("--nodes", line.options.nodes,
                 "agents to wait for, this machine's included (mwgraph agent)")
      ->check(CLI::Range(std::size_t{1}, mw::detail::most_nodes))
      ->capture_default_str();
  sub.add_option("--listen", line.options.listen,
                 "where agents of other machines reach the job")
      ->capture_default_str();
}

int run(const run_line& line) {
  mw::tools::settle_process();
  const mw::job_graph graph = read_graph(line.file);
  check_devices(line.options.devices);
  const job_folder folder(line.folder, graph.name());
  return supervise(graph, folder, line.options);
}

/// Leaves terminal, session and working folder of the caller, which is told by the pipe
/// that the job can be found. Precondition: there is no other thread.
int start(const run_line& line) {
  mw::tools::settle_process();
  const mw::job_graph graph = read_graph(line.file);
  check_devices(line.options.devices);
  run_line own = line;
  for (std::string* const path : {&own.options.devices, &own.options.logs, &own.folder})
    if (!path->empty()) *path = std::filesystem::absolute(*path);
  const job_folder folder(own.folder, graph.name());
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0)
    throw std::system_error(errno, std::generic_category(), "pipe");
  mw::detail::unique_descriptor heard(pipe[0]);
  mw::detail::unique_descriptor told(pipe[1]);
  const pid_t child = ::fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child > 0) {
    told = mw::detail::unique_descriptor();
    char byte = 0;
    if (::read(heard.get(), &byte, 1) != 1)
      throw std::runtime_error(
          fmt::format("the job could not be started: see {}/log", folder.path()));
    print(fmt::format("{} runs (mwgraph status {})\n", graph.name(), graph.name()));
    return done;
  }
  ::setsid();
  const std::string log = folder.path() + "/log";
  const mw::detail::unique_descriptor out(
      ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const mw::detail::unique_descriptor in(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(in.get(), STDIN_FILENO);
  ::dup2(out.get(), STDOUT_FILENO);
  ::dup2(out.get(), STDERR_FILENO);
  own.options.is_there = [&told] {
    // The caller may have gone.
    const auto sent = ::write(told.get(), "", 1);
    static_cast<void>(sent);
    told = mw::detail::unique_descriptor();
  };
  return supervise(graph, folder, own.options);
}

}  // namespace

void add_run(CLI::App& app, command& chosen) {
  CLI::App& sub = *app.add_subcommand(
      "run",
      "run a job on this machine; it ends with this command, the exit code of which "
      "is the job's");
  const auto line = std::make_shared<run_line>();
  add_run_options(sub, *line);
  sub.callback([line, &chosen] { chosen = [line] { return run(*line); }; });
}

void add_start(CLI::App& app, command& chosen) {
  CLI::App& sub =
      *app.add_subcommand("start", "start a job on this machine, and leave it running");
  const auto line = std::make_shared<run_line>();
  add_run_options(sub, *line);
  sub.callback([line, &chosen] { chosen = [line] { return start(*line); }; });
}

}  // namespace mwgraph
