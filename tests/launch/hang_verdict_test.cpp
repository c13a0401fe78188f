// Who is stuck, by what is known of all workers (L29, L65).
#include "launch/hang_verdict.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

using namespace manyworlds;
using namespace manyworlds::detail;
using namespace std::chrono_literals;

namespace {

constexpr duration limit = 2s;

/// A worker of two worlds with all others, in order.
hang_witness healthy(int rank) {
  hang_witness w;
  w.rank = rank;
  w.pid = 100 + rank;
  w.state = 'S';
  w.beats = true;
  w.silent = 100ms;
  w.without_turn = 100ms;
  w.worlds = {{"kv", 4}, {"mesh", 4}};
  return w;
}

std::vector<hang_witness> four() {
  return {healthy(0), healthy(1), healthy(2), healthy(3)};
}

void suspect(hang_witness& by, int rank) {
  for (const auto& in : by.worlds) by.suspects.push_back({in.world, rank, in.size});
}

std::vector<hang_verdict> judged(const std::vector<hang_witness>& all,
                                 bool was_late = false) {
  return hang_verdicts({limit, limit, was_late, all});
}

/// "2 stopped", and so on.
std::string outcome_of(const std::vector<hang_verdict>& verdicts) {
  static const char* const names[] = {
      "stopped",  "in_kernel", "suspected",   "stopped_and_suspected",
      "no_beats", "no_turns",  "no_progress", "no_output"};
  std::string all;
  for (const hang_verdict& v : verdicts) {
    all += (all.empty() ? "" : ", ") + std::to_string(v.rank) + " " +
           names[static_cast<int>(v.reason)];
  }
  return all;
}

}  // namespace

TEST_SUITE_BEGIN("launch");

TEST_CASE("L65: of workers that are well none is stuck") {
  CHECK(outcome_of(judged(four())).empty());
  CHECK(outcome_of(judged({})).empty());
}

TEST_CASE(
    "L65: a worker that is stopped beyond the limit is stuck, and its peers accuse") {
  auto all = four();
  all[2].state = 'T';
  all[2].in_state = limit;
  all[2].silent = all[2].without_turn = limit;
  suspect(all[0], 2);
  all[3].waits = hang_wait{"recv", "kv", 2};
  all[1].waits = hang_wait{"all_reduce", "mesh", std::nullopt};
  const auto verdicts = judged(all);
  REQUIRE(outcome_of(verdicts) == "2 stopped");
  CHECK(verdicts.front().accusers == std::vector<int>{0, 1, 3});
  CHECK(verdicts.front().text() ==
        "rank 2 (pid 102) is stuck: it is stopped for 2 s; rank 1 waits in all_reduce of "
        "mesh, rank 3 waits for rank 2 in recv of kv");
  all[2].in_state = limit - 1ms;
  all[2].silent = all[2].without_turn = limit - 1ms;
  CHECK(outcome_of(judged(all)).empty());
}

TEST_CASE("L65: workers of other nodes accuse, and are not judged here") {
  hang_witness silent = healthy(2);
  silent.silent = silent.without_turn = limit;
  CHECK(outcome_of(judged({silent})).empty());
  hang_witness far;
  far.rank = 7;
  far.is_elsewhere = true;
  far.silent = far.without_turn = 1h;
  far.waits = hang_wait{"all_reduce", "mesh", std::nullopt};
  far.suspects = {{"kv", 2, 0}};
  // One world of two is not most of them.
  CHECK(outcome_of(judged({silent, far})).empty());
  far.suspects.push_back({"mesh", 2, 0});
  const auto verdicts = judged({silent, far});
  REQUIRE(outcome_of(verdicts) == "2 suspected");
  CHECK(verdicts.front().accusers == std::vector<int>{7});
  CHECK(
      verdicts.front().text() ==
      "rank 2 (pid 102) is stuck: it is silent, also to its peers, for 2 s; rank 7 waits "
      "in all_reduce of mesh");
  CHECK(outcome_of(judged({healthy(2), far})).empty());
  hang_witness script;
  script.rank = 3;
  script.without_output = limit;
  CHECK(outcome_of(judged({script, far})) == "3 no_output");
}

TEST_CASE("L65: a worker under a debugger is not stuck by the kernel") {
  auto all = four();
  all[2].state = 't';
  all[2].in_state = all[2].silent = all[2].without_turn = 1h;
  suspect(all[0], 2);
  CHECK(outcome_of(judged(all)).empty());
}

TEST_CASE("L65: a reactor that a task holds is stuck, looping or in a system call") {
  for (const char state : {'R', 'S'}) {
    auto all = four();
    all[1].state = state;
    all[1].without_turn = limit;
    CHECK(outcome_of(judged(all)) == "1 no_turns");
  }
}

TEST_CASE("L65: a worker that waits for a stuck one is not accused") {
  auto all = four();
  all[1].without_turn = limit;
  for (const std::size_t i : {0U, 2U, 3U}) {
    all[i].waits = hang_wait{"all_reduce", "kv", std::nullopt};
    all[i].without_progress = 1h;
  }
  CHECK(outcome_of(judged(all)) == "1 no_turns");
}

TEST_CASE(
    "L65: progress that stands still is a hang only while no member is waited for") {
  auto all = four();
  all[3].without_progress = limit;
  CHECK(outcome_of(judged(all)) == "3 no_progress");
  all[3].waits = hang_wait{"recv", "kv", 0};
  CHECK(outcome_of(judged(all)).empty());
  all[3].waits = std::nullopt;
  all[3].without_progress = limit - 1ms;
  CHECK(outcome_of(judged(all)).empty());
}

TEST_CASE(
    "L65: a disk that is slow and serves accuses none, and one that does not does") {
  auto all = four();
  all[0].state = 'D';
  all[0].in_state = 300ms;
  all[0].was_at_disk = true;
  all[0].without_turn = 1h;
  all[0].without_progress = 1h;
  CHECK(outcome_of(judged(all)).empty());
  all[0].in_state = limit;
  CHECK(outcome_of(judged(all)) == "0 in_kernel");
}

TEST_CASE("L65: a limit for uninterruptible sleep alone convicts of nothing else") {
  auto all = four();
  all[0].state = 'D';
  all[1].state = 'T';
  all[0].in_state = all[1].in_state = limit;
  all[2].without_turn = 1h;
  CHECK(outcome_of(hang_verdicts({duration::max(), limit, false, all})) == "0 in_kernel");
}

TEST_CASE("L65: silence is a hang where peers of most of the worlds say the same") {
  auto all = four();
  all[2].silent = all[2].without_turn = limit;
  CHECK(outcome_of(judged(all)).empty());
  all[0].suspects = {{"kv", 2, 4}};
  CHECK(outcome_of(judged(all)).empty());
  all[1].suspects = {{"mesh", 2, 4}};
  const auto verdicts = judged(all);
  CHECK(outcome_of(verdicts) == "2 suspected");
  CHECK(verdicts.front().accusers == std::vector<int>{0, 1});
  all[2].silent = 100ms;
  CHECK_MESSAGE(outcome_of(judged(all)) == "2 no_turns", "its own beats tell more");
  all[2].without_turn = 100ms;
  CHECK_MESSAGE(outcome_of(judged(all)).empty(), "one that is heard is not silent");
}

TEST_CASE(
    "L65: of a silent worker that is stopped, the verdict says that it is stopped") {
  auto all = four();
  all[2].silent = limit;
  all[2].state = 'T';
  all[2].in_state = limit - 300ms;
  CHECK(outcome_of(judged(all)).empty());
  for (const std::size_t by : {0u, 1u, 3u}) suspect(all[by], 2);
  const auto verdicts = judged(all);
  REQUIRE(outcome_of(verdicts) == "2 stopped_and_suspected");
  CHECK(verdicts[0].text().find("is stuck: it is stopped, and silent for 2 s") !=
        std::string::npos);
}

TEST_CASE("L65: an accuser that was late, or is silent itself, is not believed") {
  auto all = four();
  all[2].silent = limit;
  suspect(all[0], 2);
  all[0].was_late = true;
  CHECK(outcome_of(judged(all)).empty());
  all[0].was_late = false;
  all[0].silent = limit;
  all[0].state = 'T';
  all[0].in_state = limit;
  CHECK_MESSAGE(outcome_of(judged(all)) == "0 stopped", "the accuser is what is stuck");
}

TEST_CASE("L65: an accuser that hears no member is cut off, and not believed") {
  auto all = four();
  all[2].silent = limit;
  for (const int rank : {1, 2, 3}) suspect(all[0], rank);
  CHECK(outcome_of(judged(all)).empty());
  all[0].suspects.clear();
  for (const int rank : {2, 3}) suspect(all[0], rank);
  CHECK(outcome_of(judged(all)) == "2 suspected");
  all[0].worlds.clear();
  CHECK_MESSAGE(outcome_of(judged(all)) == "2 suspected", "its worlds broke by that");
  suspect(all[0], 1);
  all[0].suspects.push_back({"kv", 1, 4});
  all[0].suspects.push_back({"mesh", 1, 4});
  CHECK(outcome_of(judged(all)).empty());
}

TEST_CASE("L65: of two members one may accuse the other") {
  std::vector<hang_witness> two{healthy(0), healthy(1)};
  for (hang_witness& w : two) w.worlds = {{"pair", 2}};
  two[1].silent = limit;
  suspect(two[0], 1);
  CHECK(outcome_of(judged(two)) == "1 suspected");
}

TEST_CASE("L65: a worker in no world has no peers, and its silence counts") {
  auto all = four();
  all[1].worlds.clear();
  all[1].silent = limit;
  CHECK(outcome_of(judged(all)) == "1 no_beats");
}

TEST_CASE("L65: on a machine that was frozen no worker is stuck") {
  auto all = four();
  for (hang_witness& w : all) {
    w.state = 'T';
    w.in_state = w.silent = w.without_turn = 1h;
  }
  CHECK(outcome_of(judged(all, true)).empty());
}

TEST_CASE(
    "L29: output alone counts for programs without the library, if all are silent") {
  std::vector<hang_witness> all(3);
  for (int i = 0; i < 3; ++i) {
    all[static_cast<std::size_t>(i)].rank = i;
    all[static_cast<std::size_t>(i)].state = 'S';
  }
  CHECK_MESSAGE(outcome_of(judged(all)).empty(), "output is not known");
  for (hang_witness& w : all) w.without_output = 3s;
  CHECK_MESSAGE(outcome_of(judged(all)) == "0 no_output", "none has ever written");
  all[1].has_written = all[2].has_written = true;
  all[2].without_output = 4s;
  CHECK(outcome_of(judged(all)) == "2 no_output");
  all[0].without_output = 1s;
  CHECK(outcome_of(judged(all)).empty());
  all[0].without_output = 3s;
  all[1].state = 'T';
  all[1].in_state = limit;
  CHECK_MESSAGE(outcome_of(judged(all)) == "1 stopped", "the others wait for it");
}

TEST_SUITE_END();
