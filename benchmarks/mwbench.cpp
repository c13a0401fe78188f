// mwbench: measures the cost of the library on this machine, each figure beside the raw
// limit of the same run where there is one.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <map>

#include "commands.hpp"
#include "session.hpp"

namespace {

using namespace mwbench;

void add_options(CLI::App& app, common_options& common, bool& asks_launcher) {
  const std::map<std::string, mw::engine_kind> engines{
      {"auto", mw::engine_kind::automatic},
      {"io_uring", mw::engine_kind::io_uring},
      {"epoll", mw::engine_kind::epoll},
  };
  app.add_flag("--turns", common.turns,
               "at the end, how long the turns of the first process's reactors took");
  app.add_option("--engine", common.engine, "auto, io_uring or epoll")
      ->transform(CLI::CheckedTransformer(engines).description(""))
      ->default_str("auto");
  const std::map<std::string, bool> transports{{"shm", true}, {"tcp", false}};
  app.add_option("--transport", common.shared_memory,
                 "shm (where the processes may share memory), or tcp")
      ->transform(CLI::CheckedTransformer(transports).description(""))
      ->default_str("shm");
  app.add_flag("!--refuse-reading", common.read_peers,
               "as where process_vm_readv is refused");
  app.add_flag("!--no-mover", common.mover,
               "without the second thread that copies large messages");
  app.add_option("--spin", common.spin_us,
                 "microseconds to poll before sleeping; -1: as the library chooses")
      ->check(CLI::Range(-1, 10'000'000))
      ->capture_default_str();
  app.add_flag("!--no-launcher", asks_launcher,
               "starts its own processes, although a launcher has started this one");
}

}  // namespace

int main(int argc, char** argv) {
  // A controller, which is this program too, has started this process as a worker.
  if (std::getenv("MANYWORLDS_SESSION") != nullptr)
    return mw::worker_main(session_functions(), argc, argv);
  CLI::App app{
      "Measures the cost of manyworlds on this machine, beside the raw limit of the same "
      "run."};
  common_options common;
  common.arguments.assign(argv + 1, argv + argc);
  unsigned limit = 600;
  p2p_options p2p;
  beside_options beside;
  pairs_options pairs;
  uring_options uring;
  worlds_options worlds;
  collectives_options collectives;
  fail_options fail;
  session_options session;
  shrink_options shrink;
  form_options form;
  store_options store;
  idle_options idle;
  cancel_options cancel;
  await_options await;
  process_options process;
  rendezvous_options rendezvous;
  memory_options memory;
  scale_options scale;
  std::vector<std::string> drawn;
  bool asks_launcher = true;
  add_options_of_any(app, common, limit);
  add_options(app, common, asks_launcher);
  add_p2p(app, common, p2p);
  add_beside(app, common, beside);
  add_pairs(app, common, pairs);
  add_uring(app, common, uring);
  add_worlds(app, common, worlds);
  add_collectives(app, common, collectives);
  add_fail(app, common, fail);
  add_session(app, common, session);
  add_shrink(app, common, shrink);
  add_form(app, common, form);
  add_store(app, common, store);
  add_idle(app, common, idle);
  add_cancel(app, common, cancel);
  add_await(app, common, await);
  add_process(app, common, process);
  add_rendezvous(app, common, rendezvous);
  add_memory(app, common, memory);
  add_scale(app, common, scale);
  add_draw(app, drawn);
  app.parse_complete_callback([&] {
    bound_this_process(limit, !common.leads());
    // A process that the leader started gets its orders from it.
    if (asks_launcher && common.leads()) ask_launcher(common);
  });
  return ask(app, "mwbench", argc, argv);
}
