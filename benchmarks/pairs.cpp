#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "questions.hpp"
#include "raw_pages.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

/// Measurements of the first process of a pair in one size.
struct pair_figures {
  double mean_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  double round_trips = 0;
  double raw_mean_us = 0;  ///< 0: not measured
  double raw_p50_us = 0;
};

constexpr char more = 'x';
constexpr char last = 'q';

/// The last message says that it is the last: the receiver does not count.
mw::task<pair_figures> ping(mw::world& w, std::span<char> buffer, double seconds) {
  samples halves;
  const auto begin = now_ns();
  bool ends = false;
  while (!ends) {
    const auto sent = now_ns();
    ends = us_since(begin) >= seconds * 1e6;
    buffer[0] = ends ? last : more;
    co_await w.send(buffer, mw::to{1});
    co_await w.recv(buffer, mw::from{1});
    halves.add(us_since(sent) / 2);
  }
  const auto trips = static_cast<double>(halves.count());
  co_return pair_figures{us_since(begin) / 2 / trips, halves.median(), halves.p99(),
                         trips};
}

mw::task<void> echo(mw::world& w, std::span<char> buffer) {
  do {
    co_await w.recv(buffer, mw::from{0});
    co_await w.send(buffer, mw::to{0});
  } while (buffer[0] != last);
}

/// The same by raw pages.
void raw_ping(raw_pages& raw, std::span<char> buffer, double seconds,
              pair_figures& into) {
  samples halves;
  const auto begin = now_ns();
  bool ends = false;
  while (!ends) {
    const auto sent = now_ns();
    ends = us_since(begin) >= seconds * 1e6;
    buffer[0] = ends ? last : more;
    raw.ping(std::as_writable_bytes(buffer));
    halves.add(us_since(sent) / 2);
  }
  into.raw_mean_us = us_since(begin) / 2 / static_cast<double>(halves.count());
  into.raw_p50_us = halves.median();
}

void raw_echo(raw_pages& raw, std::span<char> buffer) {
  do {
    raw.echo(std::as_writable_bytes(buffer));
  } while (buffer[0] != last);
}

mw::task<pair_figures> gather(mw::world& all, pair_figures slowest) {
  for (mw::rank_t rank = 2; rank < all.size(); rank += 2) {
    const auto arrived = co_await all.recv_message<pair_figures>(mw::from{rank});
    const pair_figures& of = arrived.head;
    slowest.mean_us = std::max(slowest.mean_us, of.mean_us);
    slowest.p50_us = std::max(slowest.p50_us, of.p50_us);
    slowest.p99_us = std::max(slowest.p99_us, of.p99_us);
    slowest.round_trips += of.round_trips;
    slowest.raw_mean_us = std::max(slowest.raw_mean_us, of.raw_mean_us);
    slowest.raw_p50_us = std::max(slowest.raw_p50_us, of.raw_p50_us);
  }
  co_return slowest;
}

fields row_of(const pairs_options& o, std::size_t size, std::string_view transport,
              const pair_figures& f) {
  fields row{
      {"bench", "pairs"},   {"transport", transport},        {"pairs", o.pairs},
      {"size", size},       {"mean_us", rounded(f.mean_us)}, {"p50_us", f.p50_us},
      {"p99_us", f.p99_us}, {"round_trips", f.round_trips},
  };
  if (f.raw_mean_us > 0) {
    row["raw_us"] = rounded(f.raw_mean_us);
    row["raw_p50_us"] = f.raw_p50_us;
  }
  return row;
}

/// What one process of a pair does in one size; only the first one measures.
mw::task<pair_figures> run_size(mw::world& all, mw::world& pair, raw_pages* raw,
                                std::span<char> buffer, double seconds) {
  const bool measures = pair.rank() == 0;
  pair_figures own;
  co_await all.barrier();
  if (measures) {
    own = co_await ping(pair, buffer, seconds);
  } else {
    co_await echo(pair, buffer);
  }
  if (!raw || buffer.size() > raw_pages::largest) co_return own;
  co_await all.barrier();
  measures ? raw_ping(*raw, buffer, seconds, own) : raw_echo(*raw, buffer);
  co_return own;
}

mw::task<void> take_part(member& m, const pairs_options& o, mw::rank_t rank,
                         report& out) {
  std::vector<mw::world> worlds;
  worlds.push_back(m.describe("all", rank, 2 * o.pairs));
  worlds.push_back(m.describe(fmt::format("pair/{}", rank / 2), rank % 2));
  co_await form_all(worlds);
  mw::world& all = worlds[0];
  mw::world& pair = worlds[1];
  // Asked before this thread is pinned to one of them.
  const std::unique_ptr<raw_pages> raw =
      co_await raw_pages::of(pair, all.size() > usable_cpus());
  // Do not pin earlier: the service thread would inherit it.
  std::optional<pinned_thread> pinned;
  if (o.pin) pinned.emplace(rank % 2);
  if (rank == 0) out.machine(m.engine());
  std::vector<char> memory(*std::max_element(o.sizes.begin(), o.sizes.end()), more);
  for (const std::size_t size : o.sizes) {
    const std::span<char> buffer = std::span(memory).first(size);
    if (rank == 0) out.progress(fmt::format("{} bytes", size));
    const pair_figures own = co_await run_size(all, pair, raw.get(), buffer, o.seconds);
    if (rank == 0) {
      const pair_figures slowest = co_await gather(all, own);
      out.row(row_of(o, size, pair.transport(), slowest));
    } else if (pair.rank() == 0) {
      co_await all.send_message(own, mw::to{0});
    }
  }
  co_await leave_all(worlds);
}

}  // namespace

void pairs(const common_options& common, const pairs_options& options) {
  member m(common);
  report out(common.json, common.transport());
  const std::vector<child> others = m.start_others(2 * options.pairs);
  const mw::rank_t rank = common.leads() ? 0 : std::stoi(common.role);
  m.runtime().run(take_part(m, options, rank, out));
  let_end(others);
}

}  // namespace mwbench
