#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "collective_data.hpp"
#include "questions.hpp"
#include "raw_pages.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

/// One member's measurements in one size.
struct call_figures {
  double mean_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  double spread = 0;
  double raw_mean_us = 0;  ///< 0: not measured
  double raw_p50_us = 0;
  std::uint64_t wrong = 0;
};

constexpr std::size_t least_calls = 5;
constexpr double most_calls = 1'000'000;

auto start(mw::world& w, collective_data& d) {
  constexpr mw::root first{0};
  switch (d.kind()) {
    case collective_kind::broadcast:
      return w.broadcast(d.target(), first);
    case collective_kind::reduce:
      return w.reduce(d.source(), d.target(), mw::sum, first);
    case collective_kind::all_reduce:
      return w.all_reduce(d.source(), d.target(), mw::sum);
    case collective_kind::gather:
      return w.gather(d.source(), d.target(), first);
    case collective_kind::all_gather:
      return w.all_gather(d.source(), d.target());
    case collective_kind::scatter:
      return w.scatter(d.source(), d.target(), first);
    case collective_kind::reduce_scatter:
      return w.reduce_scatter(d.source(), d.target(), mw::sum);
    default:
      return w.all_to_all(d.source(), d.target());
  }
}

struct timed_calls {
  samples us;
  std::uint64_t wrong = 0;
};

/// Each call begins when all members are ready for it; results are checked between
/// calls.
mw::task<timed_calls> calls(mw::world& w, collective_data& d, std::size_t count,
                            bool checks) {
  timed_calls made;
  const bool has_data = d.kind() != collective_kind::barrier;
  for (std::size_t i = 0; i < count; ++i) {
    if (has_data && checks) d.spoil();
    if (has_data) co_await w.barrier();
    const auto begin = now_ns();
    if (has_data) {
      co_await start(w, d);
    } else {
      co_await w.barrier();
    }
    made.us.add(us_since(begin));
    if (has_data && checks) made.wrong += d.wrong();
  }
  co_return made;
}

/// The same by raw pages.
samples raw_calls(raw_pages& raw, collective_data& d, std::size_t count) {
  samples us;
  d.spoil();
  for (std::size_t i = 0; i < count; ++i) {
    raw.barrier();
    const auto begin = now_ns();
    raw.call(d);
    us.add(us_since(begin));
  }
  raw.barrier();
  if (d.kind() != collective_kind::barrier && d.wrong() > 0) {
    throw std::runtime_error("raw pages hold other results than those of the collective");
  }
  return us;
}

/// How many calls come next, as rank 0 has found.
struct next_calls {
  std::uint64_t count;
  bool fill_the_time;
};

mw::task<next_calls> as_first_says(mw::world& w, next_calls found) {
  if (w.rank() != 0) {
    co_await w.recv(mw::object(found), mw::from{0});
    co_return found;
  }
  for (mw::rank_t rank = 1; rank < w.size(); ++rank) {
    co_await w.send(mw::object(found), mw::to{rank});
  }
  co_return found;
}

/// Returns how many calls fit into the time. They are counted by calls that last an
/// eighth of it, and not by the first ones unless those fill it: members that have just
/// begun still start up, and sleep in place of taking turns (of 32 members the first ten
/// barriers take 20 times as long as later ones). The peers' programs count the same way.
mw::task<std::size_t> count_for(mw::world& w, collective_data& d, double seconds) {
  constexpr std::uint64_t growth = 8;
  next_calls next{least_calls, false};
  for (double enough_us = seconds * 1e6; !next.fill_the_time;
       enough_us = seconds * 1e6 / growth) {
    const auto begin = now_ns();
    co_await calls(w, d, next.count, false);
    const double took_us = us_since(begin);
    const double fit =
        std::min(seconds * 1e6 * static_cast<double>(next.count) / took_us, most_calls);
    const auto fitting = std::max(static_cast<std::size_t>(fit), least_calls);
    next.fill_the_time = took_us > enough_us || next.count >= fitting;
    next.count = next.fill_the_time ? fitting : std::min(fitting, growth * next.count);
    next = co_await as_first_says(w, next);
  }
  co_return next.count;
}

/// At rank 0: the mean of all members, and the slowest one's quantiles.
mw::task<call_figures> collect(mw::world& w, call_figures own) {
  if (w.rank() != 0) {
    co_await w.send(mw::object(own), mw::to{0});
    co_return own;
  }
  call_figures all = own;
  for (mw::rank_t rank = 1; rank < w.size(); ++rank) {
    call_figures of;
    co_await w.recv(mw::object(of), mw::from{rank});
    all.mean_us += of.mean_us;
    all.p50_us = std::max(all.p50_us, of.p50_us);
    all.p99_us = std::max(all.p99_us, of.p99_us);
    all.spread = std::max(all.spread, of.spread);
    all.raw_mean_us += of.raw_mean_us;
    all.raw_p50_us = std::max(all.raw_p50_us, of.raw_p50_us);
    all.wrong += of.wrong;
  }
  all.mean_us /= w.size();
  all.raw_mean_us /= w.size();
  co_return all;
}

bool has_root(collective_kind kind) noexcept {
  return kind == collective_kind::broadcast || kind == collective_kind::reduce ||
         kind == collective_kind::gather || kind == collective_kind::scatter;
}

fields row_of(const mw::world& w, std::size_t size, const collective_data& d,
              const call_figures& f) {
  const double gb_s = static_cast<double>(d.bytes()) / f.mean_us / 1e3;
  fields row{
      {"bench", "collectives"},
      {"transport", w.transport()},
      {"kind", name_of(d.kind())},
      {"members", w.size()},
      {"size", size},
      {"count", d.count()},
      {"type", d.adds() ? "float32" : "uint8"},
      {"redop", d.adds() ? "sum" : "none"},
      {"root", has_root(d.kind()) ? 0 : -1},
      {"time_us", rounded(f.mean_us)},
      {"algbw_gb_s", rounded(gb_s)},
      {"busbw_gb_s", rounded(gb_s * d.bus_factor())},
      {"wrong", f.wrong},
      {"p50_us", f.p50_us},
      {"p99_us", f.p99_us},
      {"spread", f.spread},
  };
  if (f.raw_mean_us > 0) {
    row["raw_us"] = rounded(f.raw_mean_us);
    row["raw_p50_us"] = f.raw_p50_us;
  }
  return row;
}

mw::task<void> run_kinds(mw::world& w, raw_pages* raw, const collectives_options& o,
                         report& out) {
  for (const std::string& name : o.kinds) {
    const collective_kind kind = *collective_kind_named(name);
    const bool has_data = kind != collective_kind::barrier;
    const std::vector<std::size_t> sizes =
        has_data ? o.sizes : std::vector<std::size_t>{0};
    for (const std::size_t size : sizes) {
      if (w.rank() == 0) out.progress(fmt::format("{} of {} bytes", name, size));
      collective_data data(kind, size, w.rank(), w.size());
      const timed_calls first = co_await calls(w, data, 1, true);
      const std::size_t count = co_await count_for(w, data, o.seconds);
      co_await w.barrier();
      const timed_calls made = co_await calls(w, data, count, o.check);
      call_figures own{made.us.mean(),
                       made.us.median(),
                       made.us.p99(),
                       made.us.spread(),
                       0,
                       0,
                       first.wrong + made.wrong};
      if (raw && data.bytes() <= raw_pages::largest) {
        const samples us = raw_calls(*raw, data, count);
        own.raw_mean_us = us.mean();
        own.raw_p50_us = us.median();
      }
      const call_figures all = co_await collect(w, own);
      if (w.rank() == 0) out.row(row_of(w, size, data, all));
    }
  }
}

mw::task<void> take_part(member& m, const collectives_options& o, mw::rank_t rank,
                         report& out) {
  std::vector<mw::world> worlds;
  worlds.push_back(m.describe("collectives", rank, o.members));
  co_await form_all(worlds);
  // Asked before this thread is pinned to one of them.
  const std::unique_ptr<raw_pages> raw =
      co_await raw_pages::of(worlds[0], o.members > usable_cpus());
  // Do not pin earlier: the service thread would inherit it.
  std::optional<pinned_thread> pinned;
  if (o.pin) pinned.emplace(rank);
  if (rank == 0) out.machine(m.engine());
  co_await run_kinds(worlds[0], raw.get(), o, out);
  co_await leave_all(worlds);
}

}  // namespace

void collectives(const common_options& common, const collectives_options& options) {
  member m(common);
  report out(common.json, common.transport(), common.plot);
  const std::vector<child> others = m.start_others(options.members);
  const mw::rank_t rank = common.leads() ? 0 : std::stoi(common.role);
  m.runtime().run(take_part(m, options, rank, out));
  let_end(others);
  out.end();
}

}  // namespace mwbench
