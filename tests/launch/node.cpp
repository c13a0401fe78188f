// A node of a rendezvous, as a process: it says each round that it is in, and what
// happens to it. A test reads that, and kills it.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "manyworlds/launch.hpp"

namespace mw = manyworlds;

namespace {

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

mw::task<void> take_part(mw::rendezvous& meet) {
  for (;;) {
    const mw::round r = co_await meet.next();
    const mw::round_node* const self = r.find(meet.id());
    say("round " + std::to_string(r.number) + " nodes " + std::to_string(r.nodes.size()) +
        " place " + std::to_string(self->place) + " rank " +
        std::to_string(self->first_rank) + " of " + std::to_string(r.size()) +
        (meet.is_coordinator() ? " coordinates" : ""));
    const mw::round_change change = co_await meet.changed();
    say("change " + std::string(mw::name_of(change)));
    if (change == mw::round_change::closed) co_return;
  }
}

mw::task<void> leave_when_told(mw::rendezvous& meet) {
  const mw::received_signal came =
      co_await mw::until_signal({SIGTERM, SIGINT, SIGUSR1, SIGUSR2});
  if (came.number == SIGINT) co_await meet.close();
  if (came.number == SIGTERM) co_await meet.leave(mw::departure::draining);
  // SIGUSR1: the work is done. It leaves so at the end of its body. SIGUSR2: it has begun
  // to leave before, and has given up.
  if (came.number == SIGUSR2) {
    co_await mw::when_any(meet.leave(mw::departure::finished),
                          mw::sleep_for(std::chrono::milliseconds(300)));
  }
}

mw::task<void> live(mw::runtime& rt, mw::rendezvous_options options) {
  mw::rendezvous meet(rt, options, mw::node_description("127.0.0.1", 2));
  auto body = [&]() -> mw::task<void> {
    co_await mw::when_any(take_part(meet), leave_when_told(meet));
  };
  co_await meet.run(body);
}

}  // namespace

/// node BACKEND ENDPOINT RUN MIN MAX LAST_CALL_MS JOIN_MS [NODE_RANK]
int main(int argc, char** argv) {
  if (argc < 8) return 2;
  mw::rendezvous_options options;
  options.backend = argv[1];
  options.endpoint = argv[2];
  options.run_id = argv[3];
  options.limits.min_nodes = std::strtoull(argv[4], nullptr, 10);
  options.limits.max_nodes = std::strtoull(argv[5], nullptr, 10);
  options.limits.last_call = std::chrono::milliseconds(std::atoi(argv[6]));
  options.limits.join = std::chrono::milliseconds(std::atoi(argv[7]));
  options.limits.close = std::chrono::seconds(2);
  if (argc > 8) options.node_rank = std::atoi(argv[8]);
  try {
    mw::runtime rt(mw::runtime_options{.log_from = mw::log_level::error});
    rt.run(live(rt, options));
  } catch (const mw::rendezvous_error& e) {
    say(std::string("error ") + e.what());
    return 1;
  } catch (const std::exception& e) {
    say(std::string("failed ") + e.what());
    return 3;
  }
  say("ended");
}
