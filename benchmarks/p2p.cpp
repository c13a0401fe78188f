#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string_view>

#include "p2p_traffic.hpp"
#include "payload_memory.hpp"
#include "questions.hpp"
#include "raw_limits.hpp"
#include "raw_memory.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

constexpr std::size_t ping_bytes = std::size_t{64} << 20;
constexpr std::size_t stream_bytes = std::size_t{128} << 20;
/// Up to this size the messages per second are reported too.
constexpr std::size_t counted_bytes = 1024;
/// Content of a stream's messages, if they are verified.
constexpr unsigned stream_message = 99;

/// Messages of one size in one round; both sides compute the same number.
struct counts {
  counts(std::size_t size, int most)
      : pings(within(ping_bytes / std::max<std::size_t>(size, 1), most)),
        warm_up(std::max(1, pings / 20)),
        blocking(std::max(2, pings / 4)),
        messages(in_flight *
                 within(stream_bytes / std::max<std::size_t>(size, 1) / in_flight, most)),
        counted(size <= counted_bytes ? many_in_flight * std::max(1, most / 8) : 0) {}

  static int within(std::size_t wanted, int most) {
    return static_cast<int>(
        std::clamp<std::size_t>(wanted, 2, static_cast<std::size_t>(most)));
  }

  int pings;
  int warm_up;
  int blocking;
  int messages;
  /// Size for the message rate; 0: the stream's size.
  int counted;
};

/// Results of the rounds of one size: of the world, and of plain sockets.
struct figures {
  samples half_us;
  samples limit_us;
  samples blocking_us;
  samples gb_s;
  samples gb_s_limit;
  samples gb_s_blocking;
  samples messages_s;
  verification verified;
};

/// A send that was accepted behind another leaves with a later turn of the reactor. A
/// thread that blocks in plain sockets would not take that turn.
mw::task<void> let_out() { co_await mw::sleep_for(std::chrono::milliseconds(1)); }

/// One process's side of one size.
template <class Buffer>
struct side {
  mw::world& w;
  int raw;
  raw_memory* shared;      ///< null over tcp
  std::span<char> memory;  ///< memory of all its places
  std::array<Buffer, in_flight> buffers;
  std::array<pieces, in_flight> places;
  std::size_t size;
  counts n;
  bool checks;

  /// Returns the place into which the leader receives: the one it sends from, unless it
  /// verifies.
  [[nodiscard]] std::size_t back() const noexcept { return checks ? 1 : 0; }
};

/// Verifies the receiver's buffers, as a stream has left them. Not timed.
template <class Buffer>
mw::task<void> verify_stream(side<Buffer>& s, unsigned message, verification& v) {
  if (!s.checks) co_return;
  std::uint64_t wrong = 0;
  if (s.w.rank() == 0) {
    co_await s.w.recv(mw::object(wrong), mw::from{1});
    v.wrong += wrong;
    co_return;
  }
  for (const pieces& place : s.places) wrong += wrong_bytes(place, message);
  co_await s.w.send(mw::object(wrong), mw::to{0});
}

/// Plain sockets block the reactor's thread meanwhile, which breaks no world. So they
/// run in the same place, and as warm, as the world's messages.
template <class Buffer>
mw::task<void> measure(side<Buffer> s, figures& into) {
  const counts& n = s.n;
  const std::span<char> bytes = s.memory.first(s.size);
  verification& v = into.verified;
  const auto pings = [&](int count, samples& times) {
    return ping(s.w, s.buffers[0], s.places[0], s.buffers[s.back()], s.places[s.back()],
                count, times, v);
  };
  if (!s.shared) {
    raw_ping(s.raw, bytes, n.warm_up, waiting::spinning);
    into.limit_us.add_all(raw_ping(s.raw, bytes, n.pings, waiting::spinning));
  }
  samples unused;
  co_await pings(n.warm_up, unused);
  co_await pings(n.pings, into.half_us);
  co_await let_out();
  if (s.shared) {
    s.shared->ping(bytes, n.warm_up);
    into.limit_us.add_all(s.shared->ping(bytes, n.pings));
  } else {
    into.blocking_us.add_all(raw_ping(s.raw, bytes, n.blocking, waiting::blocking));
  }

  const double gb = static_cast<double>(bytes.size()) * n.messages / 1e9;
  if (!s.shared) {
    into.gb_s_limit.add(gb / raw_stream(s.raw, bytes, n.messages, waiting::spinning));
  }
  if (s.checks) fill(s.places[0], stream_message);
  const double seconds = co_await stream(s.w, s.buffers[0], n.messages, in_flight);
  into.gb_s.add(gb / seconds);
  co_await verify_stream(s, stream_message, v);
  if (n.counted == 0) {
    into.messages_s.add(n.messages / seconds);
  } else {
    into.messages_s.add(n.counted /
                        co_await stream(s.w, s.buffers[0], n.counted, many_in_flight));
  }
  co_await let_out();
  if (s.shared) {
    into.gb_s_limit.add(gb / s.shared->stream(bytes, n.messages));
  } else {
    into.gb_s_blocking.add(gb / raw_stream(s.raw, bytes, n.messages, waiting::blocking));
  }
}

template <class Buffer>
mw::task<void> answer(side<Buffer> s) {
  const counts& n = s.n;
  const std::span<char> first = s.memory.first(s.size);
  verification unused;
  if (!s.shared) raw_echo(s.raw, first, n.warm_up + n.pings, waiting::spinning);
  co_await echo(s.w, s.buffers[0], n.warm_up + n.pings);
  co_await let_out();
  if (s.shared) {
    s.shared->echo(first, n.warm_up + n.pings);
  } else {
    raw_echo(s.raw, first, n.blocking, waiting::blocking);
    raw_drain(s.raw, first, n.messages, waiting::spinning);
  }
  if (s.checks) {
    for (const pieces& place : s.places) fill(place, ~stream_message);
  }
  co_await drain(s.w, s.buffers, n.messages);
  co_await verify_stream(s, stream_message, unused);
  if (n.counted != 0) {
    std::vector<char> apart(many_in_flight * s.size);
    std::vector<std::span<char>> buffers;
    for (std::size_t i = 0; i < many_in_flight; ++i)
      buffers.push_back(std::span(apart).subspan(i * s.size, s.size));
    co_await drain(s.w, buffers, n.counted);
  }
  co_await let_out();
  if (s.shared) {
    s.shared->drain(s.memory, n.messages);
  } else {
    raw_drain(s.raw, first, n.messages, waiting::blocking);
  }
}

/// Returns the raw limit. Over tcp it is the better way of waiting: spinning wins as
/// long as it does not keep the kernel's own work off the CPU. Over shared memory it is
/// a cache line there and back, or a ring of lines one way, and for more than a line the
/// way that `way` names, of a process that has nothing else to do.
fields row_of(std::size_t size, std::string_view transport, const p2p_options& o,
              const figures& f) {
  const bool shared = transport == "shm";
  const double limit = shared ? f.limit_us.median()
                              : std::min(f.limit_us.median(), f.blocking_us.median());
  const double gb_s_limit =
      shared ? f.gb_s_limit.median()
             : std::max(f.gb_s_limit.median(), f.gb_s_blocking.median());
  return {
      {"bench", "p2p"},
      {"size", size},
      {"views", o.views},
      {"memory", o.shared_buffers ? "shared" : "plain"},
      {"transport", transport},
      {"p50_us", f.half_us.median()},
      {"p99_us", f.half_us.p99()},
      {"spread", f.half_us.spread()},
      {"limit_us", limit},
      {"limit_blocking_us", f.blocking_us.median()},
      {"ratio", rounded(f.half_us.median() / limit)},
      {"gb_s", f.gb_s.median()},
      {"limit_gb_s", gb_s_limit},
      {"gb_s_ratio", rounded(f.gb_s.median() / gb_s_limit)},
      {"messages_s", f.messages_s.median()},
      {"wrong", o.check ? fields(f.verified.wrong) : fields()},
  };
}

template <class Buffer>
mw::task<void> run_size(side<Buffer> s, std::string_view transport, bool leads,
                        const p2p_options& o, report& out) {
  figures f;
  f.verified.is_on = s.checks;
  for (int round = 0; round < o.rounds; ++round) {
    if (leads)
      out.progress(fmt::format("{} bytes, round {} of {}", s.size, round + 1, o.rounds));
    co_await s.w.barrier();
    co_await let_out();
    if (leads) {
      co_await measure(s, f);
    } else {
      co_await answer(s);
    }
  }
  if (leads) out.row(row_of(s.size, transport, o, f));
}

mw::task<void> run_sizes(member& m, mw::world& w, const common_options& common,
                         const p2p_options& o, report& out) {
  const line raw = co_await plain_connection(w);
  // Do not pin earlier: the service thread would inherit it, and no thread would spin.
  std::optional<pinned_thread> pinned;
  if (o.pin) pinned.emplace(common.leads() ? 0 : 1);
  const std::string transport = w.transport();
  const std::size_t largest = *std::max_element(o.sizes.begin(), o.sizes.end());
  const std::size_t places = !common.leads() ? in_flight : o.check ? 2 : 1;
  payload_memory memory(m.runtime(), o, largest * places);
  if (common.leads()) out.machine(m.engine());
  std::unique_ptr<raw_memory> shared;
  if (transport == "shm") {
    const way how = o.shared_buffers    ? way::copy
                    : common.read_peers ? way::read
                                        : way::ring;
    shared =
        std::make_unique<raw_memory>(raw.fd(), common.leads(), how, largest, in_flight);
  }
  for (const std::size_t size : o.sizes) {
    const std::span<char> bytes = memory.bytes().first(size * places);
    std::array<pieces, in_flight> at;
    for (std::size_t i = 0; i < places; ++i) at[i] = memory.scattered(i * size, size);
    const auto run = [&](auto buffers) {
      using buffer = typename decltype(buffers)::value_type;
      return run_size(side<buffer>{w, raw.fd(), shared.get(), bytes, buffers, at, size,
                                   counts(size, o.pings), o.check},
                      transport, common.leads(), o, out);
    };
    if (o.views == 1) {
      std::array<std::span<char>, in_flight> buffers;
      for (std::size_t i = 0; i < places; ++i) buffers[i] = at[i][0];
      co_await run(buffers);
    } else {
      std::array<std::vector<mw::buffer_view>, in_flight> views;
      std::array<std::span<mw::buffer_view>, in_flight> buffers;
      for (std::size_t i = 0; i < places; ++i) {
        views[i].assign(at[i].begin(), at[i].end());
        buffers[i] = views[i];
      }
      if (shared) shared->read_lists(bytes.data(), at);
      co_await run(buffers);
    }
  }
}

mw::task<void> take_part(member& m, const common_options& common, const p2p_options& o,
                         report& out) {
  const mw::rank_t rank = common.leads() ? 0 : 1;
  std::vector<mw::world> worlds;
  worlds.push_back(m.describe("p2p", rank));
  for (int i = 0; i < o.idle_worlds; ++i) {
    worlds.push_back(m.describe(fmt::format("idle/{}", i), rank));
  }
  co_await form_all(worlds);
  std::vector<mw::task<void>> tasks;
  for (std::size_t i = 1; i < worlds.size(); ++i) {
    tasks.push_back(park(worlds[i], 1 - rank, {}));
  }
  auto run_and_leave = [&]() -> mw::task<void> {
    co_await run_sizes(m, worlds[0], common, o, out);
    co_await leave_all(worlds);
  };
  tasks.push_back(run_and_leave());
  co_await mw::when_all(std::move(tasks));
}

}  // namespace

void p2p(const common_options& common, const p2p_options& options) {
  member m(common);
  report out(common.json, common.transport(), common.plot);
  const std::vector<child> others = m.start_others(2);
  m.runtime().run(take_part(m, common, options, out));
  out.end();
}

}  // namespace mwbench
