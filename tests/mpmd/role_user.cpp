// A workload of a role graph, for tests: its edge "kv" carries a count each way; what it
// does is printed, a line at a time.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/mpmd/role_context.hpp"
#include "manyworlds/mw.hpp"
#include "manyworlds/world/runtime.hpp"

namespace {

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

/// Both sides count rounds; a value that differs would be an error of the edge.
mw::task<void> count_together(mw::world& w) {
  const mw::rank_t peer = 1 - w.rank();
  for (int round = 0;; ++round) {
    int theirs = -1;
    co_await w.send(mw::object(round), mw::to{peer});
    co_await w.recv(mw::object(theirs), mw::from{peer});
    if (theirs != round) std::abort();
    co_await mw::sleep_for(std::chrono::milliseconds(5));
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

}  // namespace

int main() {
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
    s.spawn(tell_peers(self));
    s.spawn(count_recorded(self));
    s.spawn(self.each("kv", count_together));
    self.ready();
    co_await self.leaving();
    say("leaves");
  };
  return self.run(rt, body);
}
