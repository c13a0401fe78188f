#include <fmt/format.h>

#include <stdexcept>

#include "commands.hpp"

namespace mwbench {

void add_p2p(CLI::App& app, common_options& common, p2p_options& o) {
  CLI::App* sub = app.add_subcommand("p2p", "latency and bandwidth of two processes");
  sub->add_option("--sizes", o.sizes, "sizes of the messages: 8,64K,1M")
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
  sub->add_flag("--pin", o.pin, "each of the two processes to a CPU of its own");
  sub->add_flag("--check", o.check, "verifies received data, and counts wrong elements");
  add_plot(*sub, common);
  sub->callback([&] {
    (void)members_of(common, "p2p", 2, true);
    p2p(common, o);
  });
}

void add_beside(CLI::App& app, const common_options& common, beside_options& o) {
  CLI::App* sub = app.add_subcommand(
      "beside", "latency of small messages while large ones go the same way");
  sub->add_option("--size", o.size, "of the large messages: 64M")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->check(size_in_bytes)
      ->capture_default_str();
  sub->add_option("--pings", o.pings, "round trips")
      ->check(at_least(2))
      ->capture_default_str();
  sub->add_flag("--pin", o.pin, "each of the two processes to a CPU of its own");
  sub->callback([&] {
    (void)members_of(common, "beside", 2, true);
    beside(common, o);
  });
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
  sub->add_flag("--pin", o.pin, "the two processes of each pair to different CPUs");
  sub->callback([&common, &o, sub] {
    const bool was_said = sub->count("--pairs") > 0;
    o.pairs = members_of(common, "pairs", 2 * o.pairs, was_said) / 2;
    (void)members_of(common, "pairs", 2 * o.pairs, true);
    pairs(common, o);
  });
}

void add_uring(CLI::App& app, const common_options& common, uring_options& o) {
  CLI::App* sub = app.add_subcommand(
      "uring", "each way of io_uring over plain tcp, without the library");
  sub->add_option("--sizes", o.sizes, "of one send: 64K,1M")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false).description(""))
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 30).description("BYTES"))
      ->capture_default_str();
  sub->add_option("--memory", o.memory, "that is sent from, and into: 64M")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 30).description("BYTES"))
      ->capture_default_str();
  sub->add_option("--times", o.times, "that it is sent in a round")
      ->check(at_least(1))
      ->capture_default_str();
  sub->add_option("--rounds", o.rounds, "turns of all ways")
      ->check(at_least(1))
      ->capture_default_str();
  sub->add_option("--pings", o.pings, "round trips of 8 bytes in a round")
      ->check(at_least(2))
      ->capture_default_str();
  sub->add_flag("--pin", o.pin, "each of the two processes to a CPU of its own");
  sub->callback([&] {
    refuse_launcher(common, "uring");
    uring(common, o);
  });
}

void add_worlds(CLI::App& app, common_options& common, worlds_options& o) {
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
  sub->add_flag("--pin", o.pin, "each process to a CPU of its own");
  add_plot(*sub, common);
  sub->callback([&common, &o, sub] {
    const bool was_said = sub->count("--senders") > 0;
    o.senders = members_of(common, "worlds", o.senders + 1, was_said) - 1;
    if (o.senders < 1) throw std::runtime_error("worlds: takes two processes or more");
    worlds(common, o);
  });
}

void add_collectives(CLI::App& app, common_options& common, collectives_options& o) {
  CLI::App* sub =
      app.add_subcommand("collectives", "collectives of one world, as in nccl-tests");
  const std::vector<std::string> kinds{collective_kinds.begin(), collective_kinds.end()};
  sub->add_option("--kinds", o.kinds, "broadcast,all_reduce")
      ->delimiter(',')
      ->check(CLI::IsMember(kinds))
      ->capture_default_str();
  sub->add_option("--sizes", o.sizes, "sizes of all members' data together: 8,64K,1M")
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
  sub->add_flag("--check", o.check, "verifies every call, not the first alone");
  add_plot(*sub, common);
  sub->callback([&common, &o, sub] {
    const bool was_said = sub->count("--members") > 0;
    o.members = members_of(common, "collectives", o.members, was_said);
    // A launcher's processes may be on several machines.
    if (o.pin && !common.has_launcher() && o.members > usable_cpus()) {
      throw std::runtime_error(
          fmt::format("collectives --pin: {} members want a CPU each, this process may "
                      "use {}",
                      o.members, usable_cpus()));
    }
    collectives(common, o);
  });
}

}  // namespace mwbench
