// A pause of the whole machine, as of a virtual one that is moved: all members stand
// still for longer than any silence may last, and go on one after the other.
#include <thread>

#include "process_fixture.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

namespace {

// Spans of time that are measured, not waited for.

/// Shorter than the pause, longer than going on one after the other takes anywhere.
const std::vector<std::string> limits{"heartbeat=50", "suspect=1000", "broken=1200"};
constexpr duration pause = 2s;
/// In this time neither may be accused: both look at each other many times.
constexpr duration after_pause = 300ms;

struct pausing_pair {
  pausing_pair(engine_kind e, bool over_tcp) : here(e) {
    std::vector<std::string> settings = limits;
    if (over_tcp) settings.push_back("shm=off");
    for (int rank = 0; rank < 2; ++rank) {
      members.push_back(here.member(settings));
      for (const char* name : {"busy", "idle"}) {
        members.back().order(std::string("world ") + name + " " + std::to_string(rank) +
                             " 2");
      }
    }
    for (process& m : members) {
      m.expect("formed busy");
      m.expect("formed idle");
    }
  }

  /// Stops both in the midst of what they do, the second to go on first.
  void stand_still(std::size_t first_to_go_on) {
    for (const process& m : members) m.stop();
    std::this_thread::sleep_for(pause);
    members[first_to_go_on].go_on();
    members[1 - first_to_go_on].go_on();
  }

  site here;
  std::vector<process> members;
};

}  // namespace

TEST_CASE("a pause of all members, longer than any silence, breaks no world") {
  for (const bool over_tcp : {false, true}) {
    CAPTURE(over_tcp);
    for (const engine_kind e : engines()) {
      CAPTURE(name_of(e));
      pausing_pair p(e, over_tcp);
      process& sender = p.members[0];
      process& receiver = p.members[1];
      receiver.order("drain busy 0 1048576 1000000");
      sender.order("stream busy 1 1048576 1000000");
      for (const std::size_t first : {0U, 1U}) {
        CAPTURE(first);
        p.stand_still(first);
        std::this_thread::sleep_for(after_pause);
        for (process& m : p.members) {
          m.order("suspicions idle");
          CHECK(m.expect("suspicions idle") == "suspicions idle 0");
          m.order("suspicions busy");
          CHECK(m.expect("suspicions busy") == "suspicions busy 0");
          CHECK_FALSE(m.has_said("over"));
        }
        const std::string lane = std::to_string(first + 1);
        sender.order("recv idle 1 " + lane);
        receiver.order("send idle 0 " + lane + " awake");
        CHECK(sender.expect("got idle") == "got idle " + lane + " awake");
      }
      for (process& m : p.members) {
        CHECK_FALSE(m.has_said("error"));
        CHECK_FALSE(m.has_said("wrong"));
      }
      for (process& m : p.members) CHECK(m.end() == 0);
    }
  }
}

TEST_CASE("a pause ends, and a peer that does not go on is silent from then on") {
  for (const bool over_tcp : {false, true}) {
    CAPTURE(over_tcp);
    pausing_pair p(engine_kind::epoll, over_tcp);
    for (const process& m : p.members) m.stop();
    std::this_thread::sleep_for(pause);
    const auto begun = clock::now();
    p.members[0].go_on();
    p.members[0].expect("over idle silent_peer 1");
    p.members[0].expect("over busy silent_peer 1");
    // A whole window was given.
    CHECK(clock::now() - begun > 1100ms);
    p.members[1].go_on();
    p.members[1].expect("over idle silent_peer 1");
    for (process& m : p.members) CHECK(m.end() == 0);
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
