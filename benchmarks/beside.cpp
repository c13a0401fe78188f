#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "questions.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

constexpr mw::lane small_lane{1};
constexpr mw::lane large_lane{2};

mw::task<void> ping_beside(mw::world& w, int count, samples& half_us, bool& done) {
  std::uint64_t word = 0;
  for (int i = 0; i < count; ++i) {
    const auto begin = now_ns();
    co_await w.send(mw::object(word), mw::to{1}, small_lane);
    co_await w.recv(mw::object(word), mw::from{1}, small_lane);
    half_us.add(us_since(begin) / 2);
  }
  done = true;
}

mw::task<void> echo_beside(mw::world& w, int count) {
  std::uint64_t word = 0;
  for (int i = 0; i < count; ++i) {
    co_await w.recv(mw::object(word), mw::from{0}, small_lane);
    co_await w.send(mw::object(word), mw::to{0}, small_lane);
  }
}

/// Large messages, each behind a word that says that it comes, until `done`.
mw::task<void> send_beside(mw::world& w, std::span<char> data, const bool& done,
                           double& gb_s) {
  const auto begin = now_ns();
  double bytes = 0;
  for (bool more = true; more;) {
    more = !done;
    co_await w.send(mw::object(more), mw::to{1}, large_lane);
    if (!more) break;
    co_await w.send(data, mw::to{1}, large_lane);
    bytes += static_cast<double>(data.size());
  }
  gb_s = bytes / 1e3 / us_since(begin);
}

mw::task<void> receive_beside(mw::world& w, std::span<char> data) {
  for (bool more = true; more;) {
    co_await w.recv(mw::object(more), mw::from{0}, large_lane);
    if (more) co_await w.recv(data, mw::from{0}, large_lane);
  }
}

mw::task<void> ask_beside(mw::world& small, mw::world& large, std::span<char> data,
                          const beside_options& o, const samples& quiet, report& out) {
  samples loaded;
  double gb_s = 0;
  bool done = false;
  co_await mw::when_all(ping_beside(small, o.pings, loaded, done),
                        send_beside(large, data, done, gb_s));
  out.row({{"bench", "beside"},
           {"transport", large.transport()},
           {"small_in", &small == &large ? "the same world" : "another world"},
           {"size", o.size},
           {"quiet_p50_us", quiet.median()},
           {"quiet_p99_us", quiet.p99()},
           {"p50_us", loaded.median()},
           {"p99_us", loaded.p99()},
           {"longest_us", loaded.largest()},
           {"gb_s", gb_s}});
}

mw::task<void> take_part(member& m, const common_options& common, const beside_options& o,
                         report& out) {
  mw::world w = m.describe("beside", common.leads() ? 0 : 1);
  mw::world other = m.describe("apart", common.leads() ? 0 : 1);
  co_await w;
  co_await other;
  // Do not pin earlier: the service thread would inherit it.
  std::optional<pinned_thread> pinned;
  if (o.pin) pinned.emplace(common.leads() ? 0 : 1);
  std::vector<char> data(o.size);
  if (common.leads()) {
    out.machine(m.engine());
    samples quiet;
    bool unused = false;
    co_await ping_beside(w, o.pings, quiet, unused);
    co_await ask_beside(w, w, data, o, quiet, out);
    co_await ask_beside(other, w, data, o, quiet, out);
  } else {
    co_await echo_beside(w, o.pings);
    co_await mw::when_all(echo_beside(w, o.pings), receive_beside(w, data));
    co_await mw::when_all(echo_beside(other, o.pings), receive_beside(w, data));
  }
  co_await other.leave();
  co_await w.leave();
}

}  // namespace

void beside(const common_options& common, const beside_options& options) {
  member m(common);
  report out(common.json, common.transport());
  const std::vector<child> others = m.start_others(2);
  m.runtime().run(take_part(m, common, options, out));
  out.end();
}

}  // namespace mwbench
