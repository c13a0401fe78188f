// mwrun's command line is torchrun's (L1 to L3, L10).
#include "mwrun/command_line.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "mwrun/end_orders.hpp"

using namespace mwrun;
using namespace std::chrono_literals;

namespace {

std::map<std::string, std::string, std::less<>>& variables_here() {
  static std::map<std::string, std::string, std::less<>> all;
  return all;
}

std::optional<std::string> look_up(std::string_view name) {
  const auto found = variables_here().find(name);
  if (found == variables_here().end()) return std::nullopt;
  return found->second;
}

command_line read(std::vector<std::string> words, bool as_launch = false) {
  return read_command_line(words, &look_up, as_launch);
}

/// What is said of a command line that cannot be meant.
std::string refused(std::vector<std::string> words) {
  try {
    (void)read(std::move(words));
  } catch (const usage_error& e) {
    return e.what();
  }
  return "taken";
}

using texts = std::vector<std::string>;

}  // namespace

TEST_SUITE_BEGIN("mwrun");

TEST_CASE("L1: an option is taken in both spellings, with a space or an equals sign") {
  const texts forms[] = {
      {"--nproc-per-node", "4", "prog"}, {"--nproc_per_node", "4", "prog"},
      {"--nproc-per-node=4", "prog"},    {"--nproc_per_node=4", "prog"},
      {"--nproc", "4", "prog"},          {"--npro=4", "prog"}};
  for (const texts& form : forms) CHECK(read(form).nproc_per_node == "4");
  CHECK(read({"-r", "3", "prog"}).redirects.of(7) == 3);
  CHECK(read({"-r3", "prog"}).redirects.of(7) == 3);
  CHECK(read({"-t", "2", "-m", "pkg.mod"}).module);
  // As a script writes it where its variable is empty.
  const command_line empty = read({"--log-dir=", "--no-python", "prog"});
  CHECK((empty.log_dir.empty() && empty.no_python && empty.program == "prog"));
  CHECK(refused({"--nnodes=", "--no-python", "prog"}).starts_with("--nnodes: \"\""));
}

TEST_CASE("L1: what follows the program is the program's, also what looks like ours") {
  const command_line line = read(
      {"--nnodes=2", "prog", "--nnodes", "3", "-r", "--", "--help", "", "a b\n$(c)"});
  CHECK(line.max_nodes == 2);
  CHECK(line.program == "prog");
  CHECK(line.arguments == texts{"--nnodes", "3", "-r", "--", "--help", "", "a b\n$(c)"});
  CHECK(read({"--", "--odd", "x"}).program == "--odd");
}

TEST_CASE("L1: every option of torchrun is known") {
  const command_line line = read({"--nnodes=1:3",
                                  "--nproc-per-node=auto",
                                  "--rdzv-backend=c10d",
                                  "--rdzv-endpoint=[::1]:29400",
                                  "--rdzv-id=job",
                                  "--rdzv-conf=join_timeout=3,last_call_timeout=1",
                                  "--standalone",
                                  "--max-restarts=3",
                                  "--monitor-interval=0.5",
                                  "--start-method=fork",
                                  "--event-log-handler=console",
                                  "--role=trainer",
                                  "--no-python",
                                  "--log-dir=/logs",
                                  "--redirects=3",
                                  "--tee=0:3,12:1",
                                  "--log-line-prefix-template=[${rank}]:",
                                  "--local-ranks-filter=0,2",
                                  "--duplicate-stdout-filters=a,,b,c",
                                  "--duplicate-stderr-filters=E",
                                  "--node-rank=1",
                                  "--master-addr=host",
                                  "--master-port=29511",
                                  "--local-addr=10.0.0.1",
                                  "--numa-binding=node",
                                  "--signals-to-handle=SIGTERM,SIGUSR1",
                                  "--shutdown-timeout=2.5",
                                  "--virtual-local-rank",
                                  "prog"});
  CHECK(line.min_nodes == 1);
  CHECK(line.max_nodes == 3);
  CHECK(line.rdzv_endpoint == "[::1]:29400");
  CHECK(line.rdzv_conf.at("last_call_timeout") == "1");
  CHECK(line.max_restarts == 3);
  CHECK(line.role == "trainer");
  CHECK(line.redirects.of(0) == stream_choice::both);
  CHECK(line.tee.of(0) == stream_choice::both);
  // L10: torchrun's map takes one digit.
  CHECK(line.tee.of(12) == stream_choice::out);
  CHECK(line.tee.of(1) == stream_choice::none);
  CHECK(line.local_ranks_filter == std::vector<int>{0, 2});
  CHECK(line.duplicate_stdout_filters == texts{"a,b", "c"});
  CHECK(line.master_port == 29511);
  CHECK(line.signals_to_handle == std::vector<int>{SIGTERM, SIGUSR1});
  CHECK(line.shutdown_timeout == 2500ms);
  CHECK(line.virtual_local_rank);
  CHECK(line.log_line_prefix_template == "[${rank}]:");
}

TEST_CASE("the options that torchrun has not") {
  const command_line line = read(
      {"--restart-scope=worker", "--max-restarts-per-rank=2", "--restart-window=60",
       "--hang-timeout=2", "--spares=1", "--exit-barrier-timeout=5",
       "--propagate-exit-code", "--keep-descendants", "--ranks-filter=3",
       "--secret-file=s", "--insecure", "--agent-lost-after=1", "--dry-run", "prog"});
  CHECK(line.scope == restart_scope::worker);
  CHECK(line.max_restarts_per_rank == 2);
  CHECK(line.restart_window == 60s);
  CHECK(line.hang_timeout == 2s);
  CHECK(line.spares == 1);
  CHECK(line.exit_barrier_timeout == 5s);
  CHECK(line.propagate_exit_code);
  CHECK(line.keep_descendants);
  CHECK(line.ranks_filter == std::vector<int>{3});
  CHECK(line.insecure);
  CHECK(line.agent_lost_after == 1s);
  CHECK(line.dry_run);
}

TEST_CASE("L2: a variable says what no word says") {
  variables_here() = {{"PET_NNODES", "2:4"},     {"PET_NPROC_PER_NODE", "8"},
                      {"PET_STANDALONE", "1"},   {"PET_NO_PYTHON", "0"},
                      {"PET_REDIRECTS", "3"},    {"PET_MASTER_PORT", "1"},
                      {"PET_NUMA_BINDING", "x"}, {"PET_ROLE", ""}};
  const command_line line = read({"--nproc-per-node=2", "--master-port", "5", "prog"});
  CHECK(line.min_nodes == 2);
  CHECK(line.max_nodes == 4);
  CHECK(line.nproc_per_node == "2");
  CHECK(line.standalone);
  CHECK(!line.no_python);
  CHECK(line.redirects.of(0) == 3);
  CHECK(line.master_port == 5);
  CHECK(line.role == "default");
  variables_here() = {{"PET_MODULE", "yes"}};
  CHECK(refused({"prog"}).find("PET_MODULE: \"yes\" was given") != std::string::npos);
  variables_here().clear();
}

TEST_CASE("L3: what cannot be meant is refused in one line that names the option") {
  const auto says = [](texts words, const std::string& part) {
    const std::string said = refused(std::move(words));
    CHECK_MESSAGE(said.find(part) != std::string::npos, said);
    CHECK(said.find('\n') == std::string::npos);
  };
  says({"--nnodes=0", "p"}, "--nnodes: \"0\" was given");
  says({"--nnodes=3:1", "p"}, "--nnodes: \"3:1\" was given");
  says({"--nnodes=a:b", "p"}, "--nnodes: \"a\" was given");
  says({"--nproc-per-node=none", "p"}, "--nproc-per-node: \"none\" was given");
  says({"--max-restarts=-1", "p"}, "--max-restarts: \"-1\" was given");
  says({"--redirects=4", "p"}, "--redirects: \"4\" was given");
  says({"--tee=0:9", "p"}, "--tee: \"9\" was given");
  says({"--shutdown-timeout=soon", "p"}, "--shutdown-timeout: \"soon\" was given");
  says({"--signals-to-handle=SIGKILL", "p"}, "--signals-to-handle: \"SIGKILL\"");
  says({"--rdzv-conf=join_timeout", "p"}, "--rdzv-conf: \"join_timeout\" was given");
  says({"--restart-scope=node", "p"}, "--restart-scope: \"node\" was given");
  says({"--numa-binding=core", "p"}, "--numa-binding: \"core\" was given");
  says({"--logs-specs=mine", "p"}, "--logs-specs");
  says({"-m", "--no-python", "p"}, "--module and --no-python");
  says({"--nproc-pre-node=2", "p"}, "the nearest is --nproc-per-node");
  says({"--nprox=2", "p"}, "the nearest is --nproc-per-node");
  says({"--no", "p"}, "--no may be each of --no-python");
  says({"-x", "p"}, "there is no option -x");
  says({"--standalone=1", "p"}, "--standalone takes no value");
  says({"--nnodes"}, "--nnodes: a value is missing");
  says({"--nnodes=2"}, "the program is missing");
  says({}, "the program is missing");
}

TEST_CASE("the two command lines of the TorchElastic RFC are taken as printed") {
  const command_line first =
      read({"--nproc_per_node", "2", "--nnodes", "2", "--rdzv_backend", "standalone",
            "--rdzv_id", "J", "prog", "--arg1"});
  CHECK(first.rdzv_backend == "standalone");
  CHECK(first.rdzv_id == "J");
  CHECK(first.arguments == texts{"--arg1"});
  const command_line second = read({"--nnodes", "2", "--node_rank", "0", "--master_addr",
                                    "A", "--master_port", "8080", "prog"});
  CHECK(second.master_addr == "A");
  CHECK(second.master_port == 8080);
}

TEST_CASE("mwlaunch is torch.distributed.launch, which knows --use-env") {
  CHECK(!read({"prog"}, true).use_env);
  CHECK(read({"--use-env", "prog"}, true).use_env);
  CHECK(read({"--use_env", "prog"}, true).use_env);
  CHECK(read({"prog"}).use_env);
  CHECK(refused({"--use-env", "prog"}).find("there is no option --use-env") == 0);
}

TEST_CASE("help, version and completion need no program") {
  CHECK(read({"--help"}).asks == request::help);
  CHECK(read({"-h"}).asks == request::help);
  CHECK(read({"--version"}).asks == request::version);
  const command_line line = read({"--print-completion", "zsh"});
  CHECK(line.asks == request::completion);
  CHECK(line.completion == "zsh");
  CHECK(help_text().find("--restart-scope") != std::string::npos);
  CHECK(completion_for("bash").find("--nproc-per-node") != std::string::npos);
  CHECK(completion_for("zsh").find("compdef") != std::string::npos);
  CHECK_THROWS_AS((void)completion_for("fish"), usage_error);
}

TEST_CASE("L24: signals that come within 0.1 s are one order, as those of `timeout`") {
  end_orders orders;
  const end_orders::clock::time_point begin{};
  CHECK(orders.count(SIGTERM, begin));
  CHECK_FALSE(orders.count(SIGTERM, begin + 1ms));
  CHECK_FALSE(orders.count(SIGINT, begin + 99ms));
  CHECK(orders.counted() == 1);
  CHECK(orders.count(SIGTERM, begin + 100ms));
  CHECK(orders.counted() == 2);
}

TEST_CASE("L69: the end of a terminal is the first order or none") {
  end_orders orders;
  const end_orders::clock::time_point begin{};
  CHECK(orders.count(SIGHUP, begin));
  CHECK_FALSE(orders.count(SIGHUP, begin + 1h));
  CHECK(orders.count(SIGINT, begin + 2h));
}

TEST_SUITE_END();
