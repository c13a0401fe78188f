// A client of a role graph, for tests: submits a job, hurts it, and waits for its end.
//
// usage: job_client_user MWGRAPH ROLE_USER FOLDER
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/mpmd.hpp"
#include "manyworlds/mw.hpp"
#include "manyworlds/world/runtime.hpp"

namespace {

using namespace std::chrono_literals;

void need(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

const mw::job_status::instance* find(const mw::job_status& status,
                                     const mw::instance_id& id) {
  for (const mw::job_status::instance& each : status.instances)
    if (each.id == id) return &each;
  return nullptr;
}

/// Waits until all are ready, and that one in that incarnation at least.
mw::task<mw::job_status> until_ready(mw::job_client& job, mw::instance_id id,
                                     std::uint64_t incarnation) {
  for (int i = 0; i < 300; ++i) {
    mw::job_status now = co_await job.status();
    std::size_t ready = 0;
    for (const mw::job_status::instance& each : now.instances)
      ready += each.state == "ready";
    const mw::job_status::instance* const one = find(now, id);
    if (ready == 3 && one != nullptr && one->incarnation >= incarnation) co_return now;
    co_await mw::sleep_for(100ms);
  }
  throw std::runtime_error("not all are ready");
}

/// The one that is hurt.
const mw::instance_id hurt{"decode", 1};

mw::task<void> use(mw::runtime& rt, mw::job_graph g, mw::job_client::options options) {
  mw::job_client job = co_await mw::job_client::submit(rt, g, options);
  const mw::job_status before = co_await until_ready(job, hurt, 1);
  need(find(before, hurt)->node == "here", "it runs here");

  // A name is taken once.
  std::string refused;
  try {
    static_cast<void>(co_await mw::job_client::submit(rt, g, options));
  } catch (const std::runtime_error& e) {
    refused = e.what();
  }
  need(refused.find("runs here already") != std::string::npos, "twice: " + refused);

  ::kill(static_cast<pid_t>(find(before, hurt)->pid), SIGKILL);
  mw::job_client other(rt, g.name(), options);
  const mw::job_status after = co_await until_ready(other, hurt, 2);
  need(find(after, {"decode", 0})->pid == find(before, {"decode", 0})->pid, "untouched");
  need(find(after, hurt)->last_end.find("SIGKILL") != std::string::npos,
       "its end is told: " + find(after, hurt)->last_end);

  co_await other.stop("enough");
  const mw::job_status end = co_await job.until_over();
  need(end.exit_code == 0 && end.why == "enough", "it ends as it was told: " + end.why);

  // Its store has gone with it, and its folder says where it was.
  mw::job_client late(rt, g.name(), options);
  need((co_await late.until_over()).why == "enough", "one that asks late hears its end");
  co_await late.stop("again");
}

}  // namespace

int main(int, char** words) {
  mw::job_graph g("submitted");
  g.role("prefill").run({words[2]}).waits_until_ready();
  g.role("decode").run({words[2]}).count(1, 2, 4).waits_until_ready();
  g.edge("kv", "prefill", "decode").bulk(mw::pairs);
  mw::job_client::options options;
  options.program = words[1];
  options.folder = words[3];
  mw::runtime rt(mw::runtime_options{});
  rt.run(use(rt, g, options));
  // What is wrong with a graph is told before anything starts.
  g.edge("kv2", "prefill", "none");
  bool is_refused = false;
  const auto wrong = [&]() -> mw::task<void> {
    try {
      static_cast<void>(co_await mw::job_client::submit(rt, g, options));
    } catch (const mw::graph_error&) {
      is_refused = true;
    }
  };
  rt.run(wrong());
  return is_refused ? 0 : 1;
}
