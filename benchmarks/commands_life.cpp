#include <stdexcept>

#include "commands.hpp"
#include "plot.hpp"

namespace mwbench {

void add_fail(CLI::App& app, const common_options& common, fail_options& o) {
  CLI::App* sub =
      app.add_subcommand("fail", "from a fault to the waiter's error, and on");
  sub->add_option("--fault", o.fault, "kill, stop, or cut off from the network (tcp)")
      ->check(CLI::IsMember({"kill", "stop", "cut"}))
      ->capture_default_str();
  sub->add_option("--repeat", o.repeat)->check(at_least(1))->capture_default_str();
  sub->add_option("--members", o.members, "members of the world that the fault hits")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  sub->add_flag("--alone", o.alone, "without a healthy world that streams beside");
  sub->callback([&] {
    refuse_launcher(common, "fail");
    fail(common, o);
  });
}

void add_session(CLI::App& app, const common_options& common, session_options& o) {
  CLI::App* sub = app.add_subcommand(
      "session", "calls of a controller to its workers, and one that is killed");
  sub->add_option("--workers", o.workers, "numbers of them: 1,2,4,8")
      ->delimiter(',')
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  sub->add_option("--count", o.count, "calls of each kind")
      ->check(CLI::Range(100, 1 << 24))
      ->capture_default_str();
  sub->add_option("--kills", o.kills)->check(at_least(1))->capture_default_str();
  sub->add_option("--only", o.only, "how workers wait: nothing else is asked")
      ->check(CLI::IsMember({"spinning", "asleep", "alerted", "floor"}));
  sub->add_option("--idle", o.idle_seconds, "seconds without a call; 0: not asked")
      ->check(CLI::Range(0.0, 600.0))
      ->capture_default_str();
  sub->callback([&] {
    refuse_launcher(common, "session");
    session(common, o);
  });
}

void add_shrink(CLI::App& app, const common_options& common, shrink_options& o) {
  CLI::App* sub = app.add_subcommand("shrink", "from a kill to a world of the survivors");
  sub->add_option("--members", o.members)
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  sub->add_option("--repeat", o.repeat)->check(at_least(1))->capture_default_str();
  sub->callback([&] {
    refuse_launcher(common, "shrink");
    shrink(common, o);
  });
}

void add_form(CLI::App& app, const common_options& common, form_options& o) {
  CLI::App* sub = app.add_subcommand("form", "forming worlds of two members");
  sub->add_option("--worlds", o.worlds, "at once")
      ->check(at_least(1))
      ->capture_default_str();
  sub->add_option("--repeat", o.repeat)->check(at_least(1))->capture_default_str();
  sub->callback([&] {
    refuse_launcher(common, "form");
    form(common, o);
  });
}

void add_store(CLI::App& app, const common_options& common, store_options& o) {
  CLI::App* sub = app.add_subcommand("store", "operations of a store over tcp");
  sub->add_option("--count", o.count, "operations of each kind")
      ->check(CLI::Range(10, 1 << 30))
      ->capture_default_str();
  sub->add_option("--size", o.size, "bytes of a value: 8, 64K")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->check(size_in_bytes)
      ->capture_default_str();
  sub->add_option("--clients", o.clients, "that connect at once and meet at a barrier")
      ->check(CLI::Range(0, 10'000))
      ->capture_default_str();
  sub->add_option("--server", o.server, "HOST:PORT of another server, such as PyTorch's");
  sub->add_flag("--near", o.is_near,
                "the client lives on the asking task's reactor, not on the service's");
  sub->add_option("--etcd", o.etcd, "HOST:PORT of an etcd, which is asked in its place");
  sub->add_flag("--serve", o.serves, "only serves a store, and prints where");
  sub->callback([&] {
    refuse_launcher(common, "store");
    store(common, o);
  });
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
  sub->callback([&] {
    (void)members_of(common, "idle", 2, true);
    idle(common, o);
  });
}

void add_cancel(CLI::App& app, const common_options& common, cancel_options& o) {
  CLI::App* sub = app.add_subcommand("cancel", "giving up a begun transfer");
  sub->add_option("--size", o.size, "size of the transfer: 64M")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->check(size_in_bytes)
      ->capture_default_str();
  sub->add_option("--repeat", o.repeat)->check(at_least(1))->capture_default_str();
  sub->callback([&] {
    (void)members_of(common, "cancel", 2, true);
    cancel(common, o);
  });
}

void add_await(CLI::App& app, const common_options& common, await_options& o) {
  CLI::App* sub = app.add_subcommand("await", "a co_await, against a loop without it");
  sub->add_option("--count", o.count, "awaits of each kind in a round")
      ->check(CLI::Range(100, 1 << 30))
      ->capture_default_str();
  sub->add_option("--rounds", o.rounds, "turns of both")
      ->check(at_least(1))
      ->capture_default_str();
  sub->add_flag("--pin", o.pin, "to one CPU, without the service threads");
  sub->callback([&] {
    refuse_launcher(common, "await");
    await(common, o);
  });
}

void add_process(CLI::App& app, const common_options& common, process_options& o) {
  CLI::App* sub =
      app.add_subcommand("process", "starting programs, beside posix_spawn and fork");
  sub->add_option("--repeat", o.repeat)->check(at_least(1))->capture_default_str();
  sub->add_option("--touched", o.megabytes, "memory of this process, in MiB")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  sub->callback([&] {
    refuse_launcher(common, "process");
    process(common, o);
  });
}

void add_rendezvous(CLI::App& app, const common_options& common, rendezvous_options& o) {
  CLI::App* sub = app.add_subcommand(
      "rendezvous", "nodes to a round, and to the next one when one of them is killed");
  sub->add_option("--nodes", o.nodes)->check(CLI::Range(3, 64))->capture_default_str();
  sub->add_option("--repeat", o.repeat)->check(at_least(1))->capture_default_str();
  sub->add_option("--backends", o.backends)
      ->delimiter(',')
      ->check(CLI::IsMember({"tcp", "etcd", "file"}))
      ->capture_default_str();
  sub->add_option("--etcd", o.etcd, "endpoints of an etcd in place of one of its own");
  sub->callback([&] {
    refuse_launcher(common, "rendezvous");
    rendezvous(common, o);
  });
}

void add_memory(CLI::App& app, const common_options& common, memory_options& o) {
  CLI::App* sub = app.add_subcommand("memory", "memory of a world of two members");
  sub->add_option("--worlds", o.worlds, "between the two processes: 1,64")
      ->delimiter(',')
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  sub->callback([&] {
    (void)members_of(common, "memory", 2, true);
    memory(common, o);
  });
}

void add_scale(CLI::App& app, common_options& common, scale_options& o) {
  CLI::App* sub =
      app.add_subcommand("scale", "what grows with worlds, and what with members");
  CLI::Option* by_worlds =
      sub->add_option("--worlds", o.worlds, "live ones of two processes: 1,1000")
          ->delimiter(',')
          ->check(CLI::Range(1, 10'000))
          ->capture_default_str();
  CLI::Option* by_members =
      sub->add_option("--members", o.members, "processes of one world: 2,32")
          ->delimiter(',')
          ->check(CLI::Range(2, 1024))
          ->capture_default_str();
  sub->add_option("--seconds", o.seconds, "idle, for each row")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  sub->add_option("--pings", o.pings, "round trips")
      ->check(at_least(2))
      ->capture_default_str();
  sub->add_flag("--pin", o.pin, "the two processes with many worlds to different CPUs");
  sub->add_option("--repeat", o.repeat, "formings of a world of members")
      ->check(at_least(1))
      ->capture_default_str();
  add_plot(*sub, common);
  sub->callback([&common, &o, by_worlds, by_members] {
    // A request for one of them does not ask for the other.
    const bool of_worlds = by_worlds->count() > 0;
    const bool of_members = by_members->count() > 0;
    if (of_worlds && !of_members) o.members.clear();
    if (of_members && !of_worlds) o.worlds.clear();
    if (of_worlds) refuse_launcher(common, "scale --worlds");
    if (common.has_launcher()) {
      if (of_members && o.members.size() > 1)
        throw std::runtime_error("scale: a launcher's processes are one world");
      o.worlds.clear();
      o.members = {members_of(common, "scale", o.members.back(), of_members)};
    }
    scale(common, o);
  });
}

void add_draw(CLI::App& app, std::vector<std::string>& files) {
  CLI::App* sub = app.add_subcommand(
      "draw", "curves of what --json, or peers/compare.py, wrote: RESULTS.json FILE.svg");
  sub->add_option("files", files, "the last one is written")
      ->required()
      ->expected(2, 1000);
  sub->callback([&] {
    const std::string into = files.back();
    plot(rows_of_files({files.begin(), files.end() - 1}), into);
  });
}

}  // namespace mwbench
