// A workload of a role graph, for tests: its edges carry counts, each way or summed; what
// it does is printed, a line at a time. With the argument "controls" it answers for the
// roles that it controls: it copes with the loss of any instance but number 0. With
// "throws" it fails once it is ready.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/mpmd/role_context.hpp"
#include "manyworlds/mw.hpp"
#include "manyworlds/world/runtime.hpp"

namespace {

using namespace std::chrono_literals;

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

/// How many rounds its edges have made, all of them together.
struct round_count {
  int all = 0;
};

/// Both sides count rounds; a value that differs would be an error of the edge.
mw::task<void> count_together(mw::world& w, round_count& rounds) {
  const mw::rank_t peer = 1 - w.rank();
  for (int round = 0;; ++round) {
    int theirs = -1;
    co_await w.send(mw::object(round), mw::to{peer});
    co_await w.recv(mw::object(theirs), mw::from{peer});
    if (theirs != round) std::abort();
    ++rounds.all;
    co_await mw::sleep_for(5ms);
  }
}

/// All add their ranks to the number of the round: a wrong sum would be an error of it.
mw::task<void> sum_together(mw::world& w, round_count& rounds) {
  const int ranks = w.size() * (w.size() - 1) / 2;
  for (int round = 0;; ++round) {
    std::array<int, 1> sum{round + w.rank()};
    co_await w.all_reduce(std::span(sum), mw::sum);
    if (sum[0] != w.size() * round + ranks) std::abort();
    if (round == 0) say("sums are right in epoch " + std::to_string(w.epoch()));
    ++rounds.all;
    co_await mw::sleep_for(5ms);
  }
}

/// Works at each edge that its role has.
void keep_edges(mw::role_context& self, mw::scope& s, round_count& rounds) {
  const std::string& role = self.instance().role;
  for (const mw::graph_edge& edge : self.graph().edges()) {
    if (edge.from != role && edge.to != role) continue;
    if (edge.shape == mw::group) {
      s.spawn(
          self.world(edge.name, [&](mw::world& w) { return sum_together(w, rounds); }));
    } else {
      s.spawn(
          self.each(edge.name, [&](mw::world& w) { return count_together(w, rounds); }));
    }
  }
}

mw::task<void> tell_rounds(const round_count& rounds) {
  for (;;) {
    co_await mw::sleep_for(200ms);
    say("rounds " + std::to_string(rounds.all));
  }
}

/// Counts in a fact; what was printed is recorded.
mw::task<void> count_recorded(mw::role_context& self) {
  const auto last = self.facts().find("count");
  int count = last == self.facts().end() ? 0 : std::stoi(last->second);
  say("count was " + std::to_string(count));
  for (;;) {
    co_await self.record("count", std::to_string(++count));
    say("count " + std::to_string(count));
  }
}

mw::task<void> tell_peers(mw::role_context& self) {
  for (;;) {
    const mw::peer_event e = co_await self.next_peer_event();
    say(std::string(mw::name_of(e.kind)) + " " + e.peer.text());
  }
}

mw::task<bool> copes_without(mw::instance_id lost) {
  say("asked about " + lost.text());
  co_return lost.index != 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string_view what = count > 1 ? words[1] : "";
  round_count rounds;
  mw::role_context self;
  mw::runtime rt(self.runtime());
  const auto body = [&](mw::scope& s) -> mw::task<void> {
    const auto lives = self.facts().find("lives");
    const int before = lives == self.facts().end() ? 0 : std::stoi(lives->second);
    say("lives " + std::to_string(before));
    co_await self.record("lives", std::to_string(before + 1));
    co_await mw::when_all(self.record("same", "1"), self.record("same", "2"),
                          self.record("same", "3"));
    say("recorded thrice");
    if (what == "controls") self.on_failover(copes_without);
    s.spawn(tell_peers(self));
    s.spawn(tell_rounds(rounds));
    s.spawn(count_recorded(self));
    keep_edges(self, s, rounds);
    self.ready();
    if (what == "throws") throw std::runtime_error("no pages are left");
    co_await self.leaving();
    say("leaves");
  };
  return self.run(rt, body);
}
