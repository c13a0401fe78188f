// Many members do everything at once under the simulation, by seed.
#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <random>

#include "cluster.hpp"

using namespace manyworlds;
using namespace manyworlds::host_tests;

namespace {

struct planned {
  send_op op;
  rank_t from = no_rank;
  std::vector<std::uint8_t> bytes;
  std::uint64_t number = 0;
  bool given_up = false;
};
struct awaited {
  receive_op op;
  std::vector<std::uint8_t> bytes;
  bool given_up = false;
};

// As the world does: what was withdrawn at once has ended, and its memory is the caller's
// again.
template <class Item>
void give_up(cluster& c, rank_t at, Item& item) {
  if (item.op.ended() || item.given_up) return;
  item.given_up = true;
  if (!c.at(at).withdraw(item.op)) return;
  ++item.op.ends;
  item.op.how = operation_end::withdrawn;
  std::vector<std::uint8_t>(item.bytes.size(), 0xEE).swap(item.bytes);
}

// The first eight bytes of a message are its number on its lane.
std::vector<std::uint8_t> numbered(std::size_t size, std::uint64_t number) {
  auto bytes = pattern(size, static_cast<unsigned>(number));
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

/// All messages of a lane have one size, so that who gives up does not shift sizes.
const std::vector<std::size_t> usual_sizes{8, 5'000, 40'000, 600'000};

/// So narrow that a few messages use up the window that all lanes share.
host_backend_options narrowest() {
  host_backend_options options;
  options.eager_limit = 4'096;
  options.lane_window = 8 * 1024;
  options.world_window = 8 * 1024;
  return options;
}

/// A tenth of MANYWORLDS_TEST_SEEDS: each has three members and 60 steps, several times.
std::uint64_t seeds(std::uint64_t least) {
  const char* const wanted = std::getenv("MANYWORLDS_TEST_SEEDS");
  return wanted ? std::max<std::uint64_t>(least, std::strtoull(wanted, nullptr, 10) / 10)
                : least;
}

void run(ground where, std::uint64_t seed,
         const std::vector<std::size_t>& sizes = usual_sizes,
         const host_backend_options& options = {}) {
  CAPTURE(std::string(name_of(where)));
  CAPTURE(seed);
  const std::size_t lane_count = sizes.size();
  cluster c(3, where, options, seed);
  std::mt19937_64 dice(seed);
  std::deque<planned> sends;
  std::deque<awaited> receives;
  std::map<std::pair<rank_t, std::uint64_t>, std::uint64_t> last_seen;
  std::map<std::uint64_t, std::uint64_t> next_number;
  for (int step = 0; step < 60; ++step) {
    const std::size_t l = dice() % lane_count;
    switch (dice() % 6) {
      case 0:
      case 1: {
        planned& p = sends.emplace_back();
        const auto from = static_cast<rank_t>(dice() % 2);
        p.number = ++next_number[l * 2 + static_cast<std::uint64_t>(from)];
        p.bytes = numbered(sizes[l], p.number);
        p.from = from;
        p.op.delivered = dice() % 4 == 0;
        send(c, p.op, from, 2, p.bytes, l, p.number);
        break;
      }
      case 2:
      case 3: {
        awaited& a = receives.emplace_back();
        a.bytes.resize(sizes[l]);
        receive(c, a.op, 2, dice() % 3 == 0 ? no_rank : static_cast<rank_t>(dice() % 2),
                a.bytes, l);
        break;
      }
      case 4:
        if (!receives.empty()) give_up(c, 2, receives[dice() % receives.size()]);
        break;
      default:
        if (!sends.empty()) {
          planned& p = sends[dice() % sends.size()];
          give_up(c, p.from, p);
        }
    }
    c.sim().run_for(std::chrono::microseconds(dice() % 400));
  }
  // What was given up last may be announced, and be gone when a receive comes.
  REQUIRE(c.until([&] {
    return std::all_of(sends.begin(), sends.end(),
                       [](auto& p) { return !p.given_up || p.op.ended(); });
  }));
  // Receives for all that is left.
  for (std::size_t l = 0; l < lane_count; ++l) {
    for (rank_t from = 0; from < 2; ++from) {
      for (;;) {
        arrival_op waiting;
        waiting.peer = from;
        waiting.on = lane(l);
        c.at(2).start(waiting);
        c.sim().run_for(std::chrono::milliseconds(50));
        if (!waiting.ended()) {
          CHECK(c.at(2).withdraw(waiting));
          break;
        }
        awaited& a = receives.emplace_back();
        a.bytes.resize(sizes[l]);
        receive(c, a.op, 2, from, a.bytes, l);
        REQUIRE(c.until([&] { return a.op.ended(); }));
      }
    }
  }
  REQUIRE(c.until([&] {
    return std::all_of(sends.begin(), sends.end(), [](auto& p) { return p.op.ended(); });
  }));
  std::size_t taken = 0;
  for (awaited& a : receives) {
    if (!a.op.ended()) {
      CHECK(c.at(2).withdraw(a.op));
      continue;
    }
    CHECK(a.op.ends == 1);
    if (a.op.how == operation_end::withdrawn) continue;
    if (a.op.failed(cause::cancelled_by_peer)) continue;
    REQUIRE(a.op.done());
    ++taken;
    const std::uint64_t number = a.op.info.user.value();
    CHECK(a.bytes == numbered(a.bytes.size(), number));
    // Receives are started, and so take effect, in the order of a lane's messages.
    std::uint64_t& last = last_seen[{a.op.info.source, a.op.info.on.number()}];
    CHECK(number > last);
    last = number;
  }
  std::size_t sent = 0;
  for (auto& p : sends) {
    CHECK((p.op.done() || (p.given_up && p.op.withdrawn())));
    if (p.op.done()) ++sent;
  }
  CHECK(taken == sent);
  for (rank_t r = 0; r < 3; ++r) CHECK(c[r].events.quiet());
}

}  // namespace

TEST_SUITE("host random") {
  TEST_CASE(
      "no message is lost, doubled, torn or overtaken whatever the network and the "
      "receivers do") {
    // With a CPU for each member both sides copy what is large.
    host_backend_options one_cpu;
    one_cpu.cpus = 1;
    host_backend_options a_cpu_each;
    a_cpu_each.cpus = 3;
    for (std::uint64_t seed = 1; seed <= seeds(60); ++seed) {
      run(ground::simulated, seed);
      run(ground::shared_simulated, seed, usual_sizes, one_cpu);
      run(ground::shared_simulated, seed, usual_sizes, a_cpu_each);
    }
  }

  TEST_CASE("nor where the window that all lanes share is used up all the time") {
    const std::vector<std::size_t> sizes{8,     3'000, 3'500, 4'000, 3'999,
                                         2'000, 4'000, 5'000, 40'000};
    for (std::uint64_t seed = 1; seed <= seeds(120); ++seed) {
      run(ground::simulated, seed, sizes, narrowest());
      run(ground::shared_simulated, seed, sizes, narrowest());
    }
  }
}
