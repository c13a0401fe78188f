// mwbench: what the library costs on this machine, each figure beside the raw limit of
// the same run where there is one.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>

#include "questions.hpp"

namespace {

using namespace mwbench;

void add_common(CLI::App& app, common_options& common, unsigned& limit) {
  const std::map<std::string, mw::engine_kind> engines{
      {"auto", mw::engine_kind::automatic},
      {"io_uring", mw::engine_kind::io_uring},
      {"epoll", mw::engine_kind::epoll},
  };
  app.add_flag("--json", common.json, "one object a line, for programs");
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
               "without its second thread for what is large");
  app.add_option("--spin", common.spin_us,
                 "microseconds to look before sleeping; -1: as the library chooses")
      ->check(CLI::Range(-1, 10'000'000))
      ->capture_default_str();
  app.add_option("--limit", limit, "seconds after which all of it is killed")
      ->capture_default_str();
  // How the leader starts the others.
  app.add_option("--store", common.store)->group("");
  app.add_option("--role", common.role)->group("");
  app.require_subcommand(1);
  app.fallthrough();
}

// No more than a message can have.
const CLI::Validator size_in_bytes =
    CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 46).description("BYTES");

CLI::Validator at_least(int least) { return CLI::Range(least, 1 << 20); }

void add_p2p(CLI::App& app, const common_options& common, p2p_options& o) {
  CLI::App* sub = app.add_subcommand("p2p", "latency and bandwidth of two processes");
  sub->add_option("--sizes", o.sizes, "of the messages: 8,64K,1M")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false).description(""))
      ->check(size_in_bytes)
      ->capture_default_str();
  sub->add_option("--rounds", o.rounds, "turns of world and plain sockets")
      ->check(at_least(1))
      ->capture_default_str();
  sub->add_option("--pings", o.pings, "round trips in a round, at most")
      ->check(at_least(2))
      ->capture_default_str();
  sub->add_option("--idle-worlds", o.idle_worlds,
                  "worlds beside in which nothing happens")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  sub->add_option("--views", o.views, "pieces of each message, scattered")
      ->check(at_least(1))
      ->capture_default_str();
  sub->add_flag("--shared-buffers", o.shared_buffers, "messages lie in a shared pool");
  sub->add_flag("--pin", o.pin, "the two processes to CPUs 0 and 1");
  sub->callback([&] { p2p(common, o); });
}

void add_pairs(CLI::App& app, const common_options& common, pairs_options& o) {
  CLI::App* sub = app.add_subcommand(
      "pairs", "latency of several pairs of processes at once, also on too few CPUs");
  sub->add_option("--pairs", o.pairs)->check(CLI::Range(1, 64))->capture_default_str();
  sub->add_option("--sizes", o.sizes, "of the messages: 8,64K")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false).description(""))
      ->check(size_in_bytes)
      ->capture_default_str();
  sub->add_option("--seconds", o.seconds, "a size")
      ->check(CLI::Range(0.01, 60.0))
      ->capture_default_str();
  sub->add_flag("--pin", o.pin, "the two processes of each pair to CPUs 0 and 1");
  sub->callback([&] { pairs(common, o); });
}

void add_worlds(CLI::App& app, const common_options& common, worlds_options& o) {
  CLI::App* sub = app.add_subcommand("worlds", "many worlds against one");
  sub->add_option("--worlds", o.worlds)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  sub->add_option("--senders", o.senders, "to one receiver, at most as many as worlds")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  sub->add_option("--sizes", o.sizes, "of the messages: 8,64K")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false).description(""))
      ->check(size_in_bytes)
      ->capture_default_str();
  sub->add_option("--rounds", o.rounds, "turns of one world and many")
      ->check(at_least(1))
      ->capture_default_str();
  sub->add_flag("--pin", o.pin, "to CPUs 0 and 1");
  sub->callback([&] { worlds(common, o); });
}

void add_collectives(CLI::App& app, const common_options& common,
                     collectives_options& o) {
  CLI::App* sub =
      app.add_subcommand("collectives", "collectives of one world, as in nccl-tests");
  const std::vector<std::string> kinds{collective_kinds.begin(), collective_kinds.end()};
  sub->add_option("--kinds", o.kinds, "broadcast,all_reduce")
      ->delimiter(',')
      ->check(CLI::IsMember(kinds))
      ->capture_default_str();
  sub->add_option("--sizes", o.sizes, "of all members' data together: 8,64K,1M")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false).description(""))
      ->capture_default_str();
  sub->add_option("--members", o.members)
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  sub->add_option("--seconds", o.seconds, "a size")
      ->check(CLI::Range(0.001, 60.0))
      ->capture_default_str();
  sub->add_flag("--pin", o.pin, "each member to a CPU of its own");
  sub->callback([&] { collectives(common, o); });
}

void add_fail(CLI::App& app, const common_options& common, fail_options& o) {
  CLI::App* sub =
      app.add_subcommand("fail", "from a fault to the waiter's error, and on");
  sub->add_option("--fault", o.fault, "kill or stop")
      ->check(CLI::IsMember({"kill", "stop"}))
      ->capture_default_str();
  sub->add_option("--repeat", o.repeat)->check(at_least(1))->capture_default_str();
  sub->add_flag("--alone", o.alone, "without a healthy world that streams beside");
  sub->callback([&] { fail(common, o); });
}

void add_shrink(CLI::App& app, const common_options& common, shrink_options& o) {
  CLI::App* sub =
      app.add_subcommand("shrink", "from a kill to a world of those who survive it");
  sub->add_option("--members", o.members)
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  sub->add_option("--repeat", o.repeat)->check(at_least(1))->capture_default_str();
  sub->callback([&] { shrink(common, o); });
}

void add_form(CLI::App& app, const common_options& common, form_options& o) {
  CLI::App* sub = app.add_subcommand("form", "forming worlds of two members");
  sub->add_option("--worlds", o.worlds, "at once")
      ->check(at_least(1))
      ->capture_default_str();
  sub->add_option("--repeat", o.repeat)->check(at_least(1))->capture_default_str();
  sub->callback([&] { form(common, o); });
}

void add_idle(CLI::App& app, const common_options& common, idle_options& o) {
  CLI::App* sub = app.add_subcommand("idle", "worlds in which nothing happens");
  sub->add_option("--worlds", o.worlds)->check(at_least(1))->capture_default_str();
  sub->add_option("--receives", o.receives, "parked, over all worlds")
      ->check(at_least(1))
      ->capture_default_str();
  sub->add_option("--seconds", o.seconds)
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  sub->callback([&] { idle(common, o); });
}

void add_cancel(CLI::App& app, const common_options& common, cancel_options& o) {
  CLI::App* sub = app.add_subcommand("cancel", "giving up a begun transfer");
  sub->add_option("--size", o.size, "of the transfer: 64M")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->check(size_in_bytes)
      ->capture_default_str();
  sub->add_option("--repeat", o.repeat)->check(at_least(1))->capture_default_str();
  sub->callback([&] { cancel(common, o); });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "What manyworlds costs on this machine, beside the raw limit of the same run."};
  common_options common;
  common.arguments.assign(argv + 1, argv + argc);
  unsigned limit = 600;
  p2p_options p2p;
  pairs_options pairs;
  worlds_options worlds;
  collectives_options collectives;
  fail_options fail;
  shrink_options shrink;
  form_options form;
  idle_options idle;
  cancel_options cancel;
  add_common(app, common, limit);
  add_p2p(app, common, p2p);
  add_pairs(app, common, pairs);
  add_worlds(app, common, worlds);
  add_collectives(app, common, collectives);
  add_fail(app, common, fail);
  add_shrink(app, common, shrink);
  add_form(app, common, form);
  add_idle(app, common, idle);
  add_cancel(app, common, cancel);
  app.parse_complete_callback([&] { bound_this_process(limit, !common.leads()); });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "mwbench: %s\n", e.what());
    return 1;
  }
  return 0;
}
