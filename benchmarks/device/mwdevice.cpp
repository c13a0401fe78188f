// mwdevice: what GPU worlds cost on this machine, beside CUDA and NCCL called by hand.
#include <CLI/CLI.hpp>
#include <cstdint>

#include "../program.hpp"
#include "device_questions.hpp"

namespace {

using namespace mwbench;

void add_sizes(CLI::App& sub, std::vector<std::size_t>& sizes) {
  // Of at least one float.
  const CLI::Validator bytes =
      CLI::Range(std::uint64_t{4}, std::uint64_t{1} << 34).description("BYTES");
  sub.add_option("--sizes", sizes, "in bytes: 1K,64K,1M")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false).description(""))
      ->check(bytes)
      ->capture_default_str();
}

void add_await(CLI::App& app, const common_options& common, await_options& o) {
  CLI::App* sub =
      app.add_subcommand("await", "an awaited sum, over enqueueing and waiting by hand");
  add_sizes(*sub, o.sizes);
  sub->add_option("--ranks", o.ranks)->check(CLI::Range(1, 64))->capture_default_str();
  sub->add_option("--rounds", o.rounds, "turns of the library and by hand")
      ->check(at_least(1))
      ->capture_default_str();
  sub->add_option("--operations", o.operations, "of each kind in a round")
      ->check(at_least(1))
      ->capture_default_str();
  sub->callback([&] { await(common, o); });
}

void add_matched(CLI::App& app, const common_options& common, matched_options& o) {
  CLI::App* sub = app.add_subcommand(
      "matched", "latency and bandwidth of two processes, with and without matching");
  add_sizes(*sub, o.sizes);
  sub->add_option("--pings", o.pings)->check(at_least(1))->capture_default_str();
  sub->add_option("--messages", o.messages, "fours of them in a stream")
      ->check(at_least(1))
      ->capture_default_str();
  sub->callback([&] { matched(common, o); });
}

void add_create(CLI::App& app, const common_options& common, create_options& o) {
  CLI::App* sub = app.add_subcommand(
      "create", "a communicator's cost, and what a host world notices of it");
  sub->add_option("--ranks", o.ranks)->check(CLI::Range(1, 64))->capture_default_str();
  sub->add_option("--repeat", o.repeat)->check(at_least(1))->capture_default_str();
  sub->add_option("--seconds", o.seconds, "of ping-pong, without and with")
      ->check(CLI::Range(0.1, 600.0))
      ->capture_default_str();
  sub->callback([&] { create(common, o); });
}

void add_worlds(CLI::App& app, const common_options& common, worlds_options& o) {
  CLI::App* sub = app.add_subcommand("worlds", "many worlds of one rank on a device");
  sub->add_option("--worlds", o.worlds)->check(at_least(1))->capture_default_str();
  sub->add_option("--seconds", o.seconds)
      ->check(CLI::Range(0.05, 600.0))
      ->capture_default_str();
  sub->callback([&] { worlds(common, o); });
}

void add_order(CLI::App& app, const common_options& common, order_options& o) {
  CLI::App* sub = app.add_subcommand(
      "order", "sums of two processes in many worlds on the same devices");
  sub->add_option("--worlds", o.worlds, "at a time: 1,2,4,8")
      ->delimiter(',')
      ->check(at_least(1))
      ->capture_default_str();
  sub->add_option("--rounds", o.rounds)->check(at_least(1))->capture_default_str();
  sub->callback([&] { order(common, o); });
}

void add_kill(CLI::App& app, const common_options& common, kill_options& o) {
  CLI::App* sub = app.add_subcommand(
      "kill", "from a fault to the error, and to the buffers of a hung sum");
  sub->add_option("--fault", o.fault, "kill or stop")
      ->check(CLI::IsMember({"kill", "stop"}))
      ->capture_default_str();
  sub->add_option("--repeat", o.repeat)->check(at_least(1))->capture_default_str();
  sub->add_flag("--frees", o.frees, "a thread stands in cudaFree at the fault");
  sub->callback([&] { kill(common, o); });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "What GPU worlds cost on this machine, beside CUDA and NCCL called by hand."};
  common_options common;
  common.arguments.assign(argv + 1, argv + argc);
  unsigned limit = 600;
  await_options await;
  matched_options matched;
  create_options create;
  worlds_options worlds;
  order_options order;
  kill_options kill;
  add_options_of_any(app, common, limit);
  add_await(app, common, await);
  add_matched(app, common, matched);
  add_create(app, common, create);
  add_worlds(app, common, worlds);
  add_order(app, common, order);
  add_kill(app, common, kill);
  app.parse_complete_callback([&] { bound_this_process(limit, !common.leads()); });
  return ask(app, "mwdevice", argc, argv);
}
