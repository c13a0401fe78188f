#include <functional>

#include "device_questions.hpp"
#include "gpu_member.hpp"

namespace mwbench {

namespace {

std::string_view name_of(mw::creation_by c) {
  return c == mw::creation_by::split ? "split" : "direct";
}

struct costs {
  samples ready_ms;
  samples bytes;
};

/// A world that is used once and ends: by leave, which destroys its communicator, or by a
/// failure, which aborts it.
mw::task<mw::device_costs> come_and_go(gpu_member& g, std::string name, int ranks,
                                       mw::creation_by how, bool breaks) {
  mw::device_options options;
  options.creation = how;
  mw::world w = g.describe(name, ranks, options);
  co_await w;
  const mw::device_costs cost = co_await w.device_ready();
  {
    mw::device_buffer<float> x(g.pool(), 256, w.stream());
    co_await w.all_reduce(x, mw::sum);
  }
  if (breaks) {
    // Another member may have been here first.
    (void)co_await mw::outcome(w.barrier());
    w.fail("on purpose");
  } else {
    co_await w.leave();
  }
  co_await w.drained();
  co_return cost;
}

mw::task<void> count_costs(gpu_member& g, const create_options& o, report& out) {
  for (const auto how : {mw::creation_by::split, mw::creation_by::direct}) {
    costs all;
    for (int i = 0; i < o.repeat; ++i) {
      const auto cost = co_await come_and_go(
          g, fmt::format("create/{}/{}", name_of(how), i), o.ranks, how, i % 2 == 1);
      all.ready_ms.add(std::chrono::duration<double, std::milli>(cost.time).count());
      all.bytes.add(static_cast<double>(cost.bytes));
    }
    if (g.rank() != 0) continue;
    fields row{
        {"bench", "create"},
        {"ranks", o.ranks},
        {"creation", name_of(how)},
        {"ready_ms", all.ready_ms.median()},
        {"ready_max_ms", all.ready_ms.largest()},
        {"mib", rounded(all.bytes.median() / (1 << 20))},
        {"first_mib", rounded(all.bytes.largest() / (1 << 20))},
        {"repeats", o.repeat},
    };
    g.row(out, std::move(row));
  }
}

constexpr char more = 'x';
constexpr char last = 'q';

/// Half round trips in a host world until `ends()`; the other side hears which is the
/// last.
mw::task<samples> ping(mw::world& w, const std::function<bool()>& ends, char final_word) {
  samples half_us;
  char byte = more;
  while (byte == more) {
    const auto sent = now_ns();
    if (ends()) byte = final_word;
    char echoed = 0;
    co_await w.send(std::span(&byte, 1), mw::to{1});
    co_await w.recv(std::span(&echoed, 1), mw::from{1});
    half_us.add(us_since(sent) / 2);
  }
  co_return half_us;
}

mw::task<void> echo(mw::world& w) {
  for (char byte = more; byte != last;) {
    co_await w.recv(std::span(&byte, 1), mw::from{0});
    co_await w.send(std::span(&byte, 1), mw::to{0});
  }
}

constexpr char pause = 'p';

/// What a host world of the same runtime notices: its ping-pong without and with
/// communicators of one rank that come and go on the device.
mw::task<void> disturb(gpu_member& g, const create_options& o, report& out) {
  mw::world host = g.base().describe("ping", g.rank());
  co_await host;
  if (g.rank() == 1) {
    co_await echo(host);
    co_return co_await host.leave();
  }
  const auto begin = now_ns();
  const std::function<bool()> over = [&] { return us_since(begin) > o.seconds * 1e6; };
  const samples quiet = co_await ping(host, over, pause);
  int made = 0;
  bool is_done = false;
  const auto again = [&]() -> mw::task<void> {
    const auto start = now_ns();
    while (us_since(start) < o.seconds * 1e6 || made < 2) {
      const auto how = made % 4 < 2 ? mw::creation_by::split : mw::creation_by::direct;
      co_await come_and_go(g, fmt::format("disturb/{}", made), 1, how, made % 2 == 1);
      ++made;
    }
    is_done = true;
  };
  const std::function<bool()> done = [&] { return is_done; };
  auto both = co_await mw::when_all(ping(host, done, last), again());
  const samples& busy = std::get<0>(both);
  co_await host.leave();
  fields row{
      {"bench", "disturb"},
      {"transport", out.transport()},
      {"quiet_p50_us", quiet.median()},
      {"quiet_p99_us", quiet.p99()},
      {"quiet_max_us", quiet.largest()},
      {"p50_us", busy.median()},
      {"p99_us", busy.p99()},
      {"max_us", busy.largest()},
      {"p99_ratio", rounded(busy.p99() / quiet.p99())},
      {"communicators", made},
      {"round_trips", busy.count()},
  };
  g.row(out, std::move(row));
}

mw::task<void> take_part(gpu_member& g, const create_options& o, report& out) {
  if (g.rank() == 0) g.tell(out);
  if (g.rank() < o.ranks) co_await count_costs(g, o, out);
  if (g.rank() < 2) co_await disturb(g, o, out);
}

}  // namespace

void create(const common_options& common, const create_options& options) {
  gpu_member g(common, rank_in(common.role));
  report out(common.json, common.transport());
  std::vector<child> others;
  const int started = common.leads() ? std::max(2, options.ranks) : 0;
  for (mw::rank_t rank = 1; rank < started; ++rank) others.push_back(g.start(rank));
  g.runtime().run(take_part(g, options, out));
}

}  // namespace mwbench
