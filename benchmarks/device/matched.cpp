#include "device_questions.hpp"
#include "gpu_member.hpp"

namespace mwbench {

namespace {

constexpr int in_flight = 4;

/// One side of two. `matching` is whether it says before the launch what it is up to.
class side {
 public:
  side(gpu_member& g, mw::world& w, std::size_t bytes)
      : world_(w),
        peer_(1 - w.rank()),
        memory_(g.pool(), in_flight * bytes / sizeof(float), w.stream()) {}

  mw::task<void> prepare() { co_await fill(memory_); }

  mw::task<void> ping_pong(bool matching, int times, samples& half_us) {
    for (int i = 0; i < times; ++i) {
      const auto begin = now_ns();
      if (peer_ == 1) co_await send(matching, 0);
      co_await receive(matching, 0);
      if (peer_ == 0) co_await send(matching, 0);
      half_us.add(us_since(begin) / 2);
    }
  }

  /// Seconds until the receiver has all.
  mw::task<double> stream(bool matching, int times) {
    co_await world_.barrier();
    const auto begin = now_ns();
    for (int i = 0; i < times; ++i) {
      std::vector<mw::task<void>> together;
      for (int at = 0; at < in_flight; ++at) {
        together.push_back(peer_ == 1 ? send(matching, at) : receive(matching, at));
      }
      co_await mw::when_all(std::move(together));
    }
    co_await world_.barrier();
    co_return us_since(begin) / 1e6;
  }

 private:
  mw::device_view part(int at) {
    const std::size_t count = memory_.count() / in_flight;
    return memory_.slice(static_cast<std::size_t>(at) * count, count);
  }
  mw::task<void> send(bool matching, int at) {
    const mw::device_view from = part(at);
    if (matching) {
      co_await world_.send(from, mw::to{peer_});
    } else {
      co_await world_.send(from, mw::to{peer_}).unmatched();
    }
  }
  mw::task<void> receive(bool matching, int at) {
    const mw::device_view into = part(at);
    if (matching) {
      co_await world_.recv(into, mw::from{peer_});
    } else {
      co_await world_.recv(into, mw::from{peer_}).unmatched();
    }
  }

  mw::world& world_;
  const mw::rank_t peer_;
  mw::device_buffer<float> memory_;
};

mw::task<void> run_size(gpu_member& g, mw::world& w, const matched_options& o,
                        std::size_t size, report& out) {
  side s(g, w, size);
  co_await s.prepare();
  for (const bool matching : {false, true}) {
    samples unused;
    co_await s.ping_pong(matching, std::max(1, o.pings / 10), unused);
    samples half_us;
    co_await s.ping_pong(matching, o.pings, half_us);
    const double seconds = co_await s.stream(matching, o.messages);
    if (g.rank() != 0) continue;
    const double bytes = static_cast<double>(size) * in_flight * o.messages;
    fields row{
        {"bench", "matched"},      {"size", size},
        {"matched", matching},     {"p50_us", half_us.median()},
        {"p99_us", half_us.p99()}, {"gb_s", rounded(bytes / seconds / 1e9)},
        {"pings", o.pings},        {"messages", o.messages * in_flight},
    };
    g.row(out, std::move(row));
  }
}

mw::task<void> take_part(gpu_member& g, const matched_options& o, report& out) {
  if (g.rank() == 0) g.tell(out);
  mw::world w = g.describe("matched", 2);
  co_await w;
  co_await w.device_ready();
  for (const std::size_t size : o.sizes) co_await run_size(g, w, o, size, out);
  co_await w.leave();
}

}  // namespace

void matched(const common_options& common, const matched_options& options) {
  gpu_member g(common, rank_in(common.role));
  report out(common.json, "nccl");
  child peer;
  if (common.leads()) peer = g.start(1);
  g.runtime().run(take_part(g, options, out));
}

}  // namespace mwbench
