#include <fmt/format.h>

#include <algorithm>

#include "costs.hpp"
#include "questions.hpp"
#include "timing.hpp"

namespace mwbench {

namespace {

using namespace std::chrono_literals;

constexpr auto meeting_limit = 60s;
constexpr int barriers = 200;

/// What a process does while nobody asks anything of it.
struct idle_cost {
  double cpu_percent = 0;
  double wake_ups_per_s = 0;
  /// Over tcp: heartbeats. In shared memory they are words that nobody sends.
  double segments_per_s = 0;
};

mw::task<idle_cost> sleep_and_look(double seconds) {
  co_await mw::sleep_for(settling);
  const usage before = usage::now();
  const std::uint64_t sent = segments_sent();
  const auto begin = now_ns();
  const std::chrono::duration<double> span(seconds);
  co_await mw::sleep_for(std::chrono::duration_cast<mw::duration>(span));
  const double took = us_since(begin) / 1e6;
  const usage after = usage::now();
  co_return idle_cost{
      100 * (after.cpu_seconds - before.cpu_seconds) / took,
      static_cast<double>(after.wake_ups - before.wake_ups) / took,
      // A connection that has ended meanwhile took what it had sent with it.
      static_cast<double>(std::max(segments_sent(), sent) - sent) / took,
  };
}

mw::task<samples> ping(mw::world& w, int count) {
  samples halves;
  std::uint64_t word = 0;
  for (int i = 0; i < count; ++i) {
    const auto begin = now_ns();
    if (w.rank() == 0) co_await w.send(mw::object(word), mw::to{1});
    co_await w.recv(mw::object(word), mw::from{1 - w.rank()});
    if (w.rank() == 1) co_await w.send(mw::object(word), mw::to{0});
    halves.add(us_since(begin) / 2);
  }
  co_return halves;
}

// --- worlds of two processes

class worlds_of_two {
 public:
  worlds_of_two(member& m, const scale_options& o, mw::rank_t rank, report& out)
      : member_(m),
        options_(o),
        rank_(rank),
        out_(out),
        first_(m.describe("one", rank)) {}

  mw::task<void> run() {
    co_await first_;
    // Not earlier: the service thread would inherit it.
    if (options_.pin) pin_this_thread(rank_);
    co_await exchange(first_, 1 - rank_);
    (void)co_await ping(first_, options_.pings);
    memory_before_ = memory_use::now();
    for (const int count : options_.worlds) co_await with(count);
    co_await first_.leave();
  }

 private:
  /// That many beside the first, all with traffic behind them.
  mw::task<void> with(int count) {
    if (rank_ == 0) out_.progress(fmt::format("{} worlds", count));
    std::vector<mw::world> worlds;
    for (int i = 0; i < count; ++i)
      worlds.push_back(member_.describe(fmt::format("of/{}/{}", count, i), rank_));
    co_await first_.barrier();
    auto begin = now_ns();
    co_await form_all(worlds);
    co_await first_.barrier();
    const double form_ms = ms_since(begin);
    for (mw::world& w : worlds) co_await exchange(w, 1 - rank_);
    co_await mw::sleep_for(settling);
    const memory_use memory = (memory_use::now() - memory_before_) / count;
    co_await first_.barrier();
    const samples halves = co_await ping(first_, options_.pings);
    const idle_cost idle = co_await sleep_and_look(options_.seconds);
    co_await first_.barrier();
    begin = now_ns();
    co_await leave_all(worlds);
    co_await first_.barrier();
    const double leave_ms = ms_since(begin);
    if (rank_ != 0) co_return;
    out_.row({
        {"bench", "scale"},
        {"transport", out_.transport()},
        {"worlds", count},
        {"form_ms", rounded(form_ms)},
        {"form_ms_each", rounded(form_ms / count)},
        {"leave_ms_each", rounded(leave_ms / count)},
        {"ping_p50_us", halves.median()},
        {"ping_p99_us", halves.p99()},
        {"cpu_percent", rounded(idle.cpu_percent)},
        {"wake_ups_per_s", rounded(idle.wake_ups_per_s)},
        {"segments_per_s", rounded(idle.segments_per_s)},
        {"own_kib_each", rounded(memory.own)},
        {"shared_kib_each", rounded(memory.shared)},
    });
  }

  member& member_;
  const scale_options& options_;
  const mw::rank_t rank_;
  report& out_;
  mw::world first_;
  memory_use memory_before_;
};

// --- one world of many processes

/// Nobody measures how long the others take to be started.
mw::task<void> meet(member& m, mw::rank_t rank, mw::rank_t size) {
  const auto key = [size](mw::rank_t of) { return fmt::format("scale/{}/{}", size, of); };
  std::vector<std::string> keys;
  for (mw::rank_t r = 0; r < size; ++r) keys.push_back(key(r));
  co_await m.store().set(key(rank), "here");
  co_await m.store().wait(keys, meeting_limit);
}

/// The mean of all members, at rank 0.
mw::task<idle_cost> mean_of_all(mw::world& w, idle_cost own) {
  if (w.rank() != 0) {
    co_await w.send_message(own, mw::to{0});
    co_return own;
  }
  for (mw::rank_t r = 1; r < w.size(); ++r) {
    const auto other = co_await w.recv_message<idle_cost>(mw::from{r});
    own.cpu_percent += other.head.cpu_percent;
    own.wake_ups_per_s += other.head.wake_ups_per_s;
    own.segments_per_s += other.head.segments_per_s;
  }
  co_return idle_cost{own.cpu_percent / w.size(), own.wake_ups_per_s / w.size(),
                      own.segments_per_s / w.size()};
}

mw::task<void> as_member(member& m, const scale_options& o, mw::rank_t rank,
                         mw::rank_t size, report& out) {
  if (rank == 0) out.progress(fmt::format("{} members", size));
  std::vector<mw::world> worlds;
  worlds.push_back(m.describe(fmt::format("members/{}", size), rank, size));
  co_await meet(m, rank, size);
  const memory_use before = memory_use::now();
  auto begin = now_ns();
  co_await worlds[0];
  co_await worlds[0].barrier();
  const double first_form_ms = ms_since(begin);
  const memory_use memory = memory_use::now() - before;
  samples again_ms;
  for (int i = 0; i < o.repeat; ++i) {
    mw::world again = m.describe(fmt::format("again/{}/{}", size, i), rank, size);
    co_await worlds[0].barrier();
    begin = now_ns();
    co_await again;
    co_await again.barrier();
    again_ms.add(ms_since(begin));
    co_await again.leave();
  }
  samples barrier_us;
  for (int i = 0; i < barriers; ++i) {
    begin = now_ns();
    co_await worlds[0].barrier();
    barrier_us.add(us_since(begin));
  }
  const idle_cost own = co_await sleep_and_look(o.seconds);
  const idle_cost idle = co_await mean_of_all(worlds[0], own);
  co_await leave_all(worlds);
  if (rank != 0) co_return;
  out.row({
      {"bench", "scale"},
      {"transport", out.transport()},
      {"members", size},
      {"first_form_ms", rounded(first_form_ms)},
      {"form_ms", again_ms.median()},
      {"barrier_us", rounded(barrier_us.mean())},
      {"barrier_p50_us", barrier_us.median()},
      {"barrier_p99_us", barrier_us.p99()},
      {"cpu_percent", rounded(idle.cpu_percent)},
      {"wake_ups_per_s", rounded(idle.wake_ups_per_s)},
      {"segments_per_s", rounded(idle.segments_per_s)},
      {"own_kib", rounded(memory.own)},
      {"shared_kib", rounded(memory.shared)},
  });
}

// --- who asks what

/// A role is "worlds", or a size and a rank: "8/3".
constexpr std::string_view second_of_two = "worlds";

void lead(const common_options& common, const scale_options& o, report& out) {
  member m(common);
  out.machine(m.engine());
  if (!o.worlds.empty()) {
    const child other = m.start(std::string(second_of_two));
    worlds_of_two two(m, o, 0, out);
    m.runtime().run(two.run());
  }
}

/// Each size has processes of its own: links that linger would beat as well.
void lead_members(const common_options& common, const scale_options& o, mw::rank_t size,
                  report& out) {
  member m(common);
  std::vector<child> others;
  for (mw::rank_t r = 1; r < size; ++r)
    others.push_back(m.start(fmt::format("{}/{}", size, r)));
  m.runtime().run(as_member(m, o, 0, size, out));
}

/// Over tcp each world has a connection to each peer, and so have those between two
/// processes of one host that find no slot in the memory they share: the first half of its
/// slots is there at once, the other is ceded bit by bit.
void make_room(const common_options& common, const scale_options& o) {
  constexpr int slots_of_link = 128;
  const int without = common.shared_memory ? slots_of_link : 0;
  int most = 0;
  for (const int count : o.worlds) most = std::max(most, count - without);
  if (!common.shared_memory) {
    for (const int count : o.members) most = std::max(most, 2 * count);
  }
  allow_open_files(static_cast<std::size_t>(most), common.leads());
}

}  // namespace

void scale(const common_options& common, const scale_options& options) {
  make_room(common, options);
  report out(common.json, common.transport(), common.plot);
  if (common.has_launcher()) {
    member m(common);
    if (common.leads()) out.machine(m.engine());
    m.runtime().run(as_member(m, options, common.launch.rank, common.launch.size, out));
  } else if (common.leads()) {
    lead(common, options, out);
    for (const int size : options.members) lead_members(common, options, size, out);
  } else if (common.role == second_of_two) {
    member m(common);
    worlds_of_two two(m, options, 1, out);
    m.runtime().run(two.run());
  } else {
    member m(common);
    const std::size_t slash = common.role.find('/');
    m.runtime().run(as_member(m, options, std::stoi(common.role.substr(slash + 1)),
                              std::stoi(common.role.substr(0, slash)), out));
  }
  out.end();
}

}  // namespace mwbench
