// The rules of rounds, without time or network (R1, R2, R6, R7).
#include "launch/round_table.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

using namespace manyworlds;
using namespace manyworlds::detail;
using namespace std::chrono_literals;

namespace {

constexpr time_point start{};

rendezvous_limits between(std::size_t least, std::size_t most) {
  rendezvous_limits limits;
  limits.min_nodes = least;
  limits.max_nodes = most;
  limits.last_call = least == most ? 0s : 30s;
  return limits;
}

node_description node(const std::string& id, int slots = 1,
                      std::string role = "default") {
  node_description n("host-" + id, slots, std::move(role));
  n.id = id;
  return n;
}

/// "a@0 b@2" for the nodes of a round at their places.
std::string text_of(const std::optional<manyworlds::round>& r) {
  if (!r) return "none";
  std::string text;
  for (const round_node& n : r->nodes)
    text += (text.empty() ? "" : " ") + n.id + "@" + std::to_string(n.place);
  return text;
}

/// Decides and publishes.
std::string formed(round_table& table, time_point now = start) {
  const std::optional<manyworlds::round> next = table.decide(now);
  if (next) table.publish(*next);
  return text_of(next);
}

round_table table_of(std::size_t least, std::size_t most) {
  return round_table(between(least, most), "job", 5s);
}

void all_ask(round_table& table, const std::vector<std::string>& ids,
             time_point now = start) {
  for (const std::string& id : ids) table.join(node(id), true, now);
}

}  // namespace

TEST_SUITE_BEGIN("launch");

TEST_CASE("R1: a round forms at once when all that it takes are there") {
  round_table table = table_of(3, 3);
  all_ask(table, {"a", "b"});
  CHECK(formed(table) == "none");
  all_ask(table, {"c"});
  CHECK(formed(table) == "a@0 b@1 c@2");
  CHECK(table.last()->number == 1);
  CHECK(formed(table) == "none");
}

TEST_CASE(
    "R8: with the minimum there the last call runs, and falling below takes it back") {
  round_table table = table_of(2, 4);
  all_ask(table, {"a"});
  CHECK(!table.deadline());
  all_ask(table, {"b"}, start + 1s);
  CHECK(table.deadline() == start + 31s);
  CHECK(formed(table, start + 30s) == "none");
  table.lose("a");
  CHECK(!table.deadline());
  CHECK(formed(table, start + 40s) == "none");
  all_ask(table, {"c"}, start + 50s);
  CHECK(formed(table, start + 79s) == "none");
  CHECK(formed(table, start + 80s) == "b@0 c@1");
}

TEST_CASE("a node that asks twice, as after a broken connection, is counted once") {
  round_table table = table_of(2, 2);
  all_ask(table, {"a", "a", "a"});
  CHECK(table.asking() == 1);
  CHECK(formed(table) == "none");
  table.miss("a", start);
  CHECK(table.asking() == 0);
  all_ask(table, {"a", "b"});
  CHECK(formed(table) == "a@0 b@1");
}

TEST_CASE("R2: the living keep their places, and a spare takes the lost one's") {
  round_table table = table_of(2, 3);
  all_ask(table, {"a", "b", "c", "spare", "later"});
  CHECK(formed(table) == "a@0 b@1 c@2");
  CHECK(table.waiting() == 2);
  table.lose("b");
  CHECK(table.over().change == round_change::node_lost);
  CHECK(table.over().node == "b");
  // The living of the round are waited for, however many there are without them.
  all_ask(table, {"c"});
  CHECK(formed(table) == "none");
  all_ask(table, {"a"});
  CHECK(formed(table) == "a@0 spare@1 c@2");
  CHECK(table.last()->number == 2);
  CHECK(table.waiting() == 1);
}

TEST_CASE(
    "nodes that were given places get them, whatever the order in which they came") {
  round_table table = table_of(3, 3);
  table.join(node("c"), true, start, 2);
  table.join(node("b"), true, start, 1);
  CHECK(formed(table) == "none");
  table.join(node("a"), true, start, 0);
  CHECK(formed(table) == "a@0 b@1 c@2");
  CHECK(table.holder_of(1)->id == "b");
  table.lose("b");
  CHECK(table.holder_of(1) == nullptr);
  table.join(node("c"), true, start, 2);
  table.join(node("d"), true, start, 1);
  table.join(node("a"), true, start, 0);
  CHECK(formed(table) == "a@0 d@1 c@2");
}

TEST_CASE("P10: a node without an agent is in each round, until one comes in its place") {
  round_table table = table_of(2, 2);
  table.join(node("a"), true, start, 0);
  table.join_outsider(round_node(node("torchrun-1"), 1), start);
  CHECK(formed(table) == "a@0 torchrun-1@1");
  CHECK(table.waiting() == 0);
  CHECK(table.over().change == round_change::none);
  table.join(node("a"), true, start, 0);
  CHECK(formed(table) == "a@0 torchrun-1@1");
  CHECK(table.last()->number == 2);
  table.join(node("b"), true, start, 1);
  CHECK(table.over().change == round_change::node_lost);
  CHECK(table.over().node == "torchrun-1");
  table.join(node("a"), true, start, 0);
  CHECK(formed(table) == "a@0 b@1");
  // One of ours holds the place now.
  table.join_outsider(round_node(node("torchrun-1"), 1), start);
  CHECK(table.over().change == round_change::none);
}

TEST_CASE("P10: a coordinator that takes over ends no round by a node without an agent") {
  round_table before = table_of(3, 3);
  before.join(node("a"), true, start, 1);
  before.join(node("b"), true, start, 2);
  before.join_outsider(round_node(node("torchrun-0"), 0), start);
  CHECK(formed(before) == "torchrun-0@0 a@1 b@2");

  round_table table = table_of(3, 3);
  table.join(node("b"), false, start, 2);
  table.learn(*before.last(), {}, start);
  table.join_outsider(round_node(node("torchrun-0"), 0), start);
  CHECK(table.over().change == round_change::none);
  // The one before it has died; its follower has its place.
  table.note_death("a");
  CHECK(formed(table) == "none");
  CHECK(table.over().change == round_change::node_lost);
  CHECK(table.over().node == "a");
  table.join(node("b"), true, start, 2);
  table.join(node("c"), true, start, 1);
  CHECK(formed(table) == "torchrun-0@0 c@1 b@2");
}

TEST_CASE("R2: survivors form the next round without a last call, and ranks stay dense") {
  round_table table = table_of(2, 3);
  all_ask(table, {"a", "b", "c"});
  CHECK(formed(table) == "a@0 b@1 c@2");
  table.lose("b");
  all_ask(table, {"a", "c"});
  CHECK(formed(table) == "a@0 c@2");
  CHECK(table.last()->find("c")->rank == 1);
  // The one that comes for it has its place.
  all_ask(table, {"d"});
  CHECK(table.waiting() == 1);
  CHECK(formed(table) == "none");
  all_ask(table, {"a"});
  CHECK(table.over().change == round_change::asked);
  all_ask(table, {"c"});
  CHECK(formed(table) == "a@0 d@1 c@2");
}

TEST_CASE("leaving when done is no loss; draining ends the round") {
  round_table table = table_of(2, 3);
  all_ask(table, {"a", "b", "c"});
  CHECK(formed(table) == "a@0 b@1 c@2");
  table.leave("a", departure::finished);
  CHECK(table.over().change == round_change::none);
  CHECK(formed(table) == "none");
  table.leave("b", departure::draining);
  CHECK(table.over().change == round_change::node_left);
  CHECK(table.over().node == "b");
  // The first cause is the one that is told (rule L-e).
  table.lose("c");
  CHECK(table.over().change == round_change::node_left);
}

TEST_CASE("R6: fewer than the minimum form nothing, however long they wait") {
  round_table table = table_of(2, 3);
  all_ask(table, {"a", "b", "c"});
  CHECK(formed(table) == "a@0 b@1 c@2");
  table.lose("b");
  table.lose("c");
  all_ask(table, {"a"});
  CHECK(formed(table, start + 1000h) == "none");
}

TEST_CASE("R7: a closed run forms no further round") {
  round_table table = table_of(1, 2);
  all_ask(table, {"a", "b"});
  CHECK(formed(table) == "a@0 b@1");
  table.close();
  all_ask(table, {"a", "b"});
  CHECK(formed(table) == "none");
  CHECK(!table.deadline());
}

TEST_CASE("R3: a coordinator that takes over waits for the nodes of the last round") {
  round_table before = table_of(2, 3);
  all_ask(before, {"a", "b", "c"});
  CHECK(formed(before) == "a@0 b@1 c@2");

  round_table table = table_of(2, 3);
  table.learn(*before.last(), {}, start);
  CHECK(table.deadline() == start + 5s);
  table.join(node("a"), false, start);
  all_ask(table, {"new", "b"});
  CHECK(table.over().change == round_change::asked);
  // a still has to ask.
  CHECK(formed(table, start + 3s) == "none");
  all_ask(table, {"a"}, start + 3s);
  // c is not heard of.
  CHECK(formed(table, start + 4s) == "none");
  CHECK(formed(table, start + 5s) == "a@0 b@1 new@2");
  CHECK(table.last()->number == 2);
}

TEST_CASE("R3: a node that was seen to die is lost once all others have been heard of") {
  round_table before = table_of(2, 3);
  all_ask(before, {"a", "b", "c"});
  CHECK(formed(before) == "a@0 b@1 c@2");

  round_table table = table_of(2, 3);
  table.learn(*before.last(), {}, start);
  all_ask(table, {"b"});
  table.note_death("a");
  CHECK(formed(table) == "none");
  all_ask(table, {"c"});
  CHECK(formed(table) == "b@1 c@2");
  // A third agent may know that it had left as done.
  round_table told = table_of(2, 3);
  told.learn(*before.last(), {}, start);
  told.join(node("b"), false, start);
  told.note_death("a");
  CHECK(formed(told) == "none");
  told.learn(*before.last(), {"a"}, start);
  told.join(node("c"), false, start);
  CHECK(formed(told, start + 10s) == "none");
  CHECK(told.over().change == round_change::none);
  // One that is here lives, whatever others have seen.
  round_table wrong = table_of(2, 3);
  wrong.learn(*before.last(), {}, start);
  for (const char* each : {"a", "b", "c"}) wrong.join(node(each), false, start);
  wrong.note_death("a");
  CHECK(formed(wrong, start + 10s) == "none");
  CHECK(wrong.over().change == round_change::none);
}

TEST_CASE("R3: a round's number is higher than all that an agent has heard of") {
  round_table table = table_of(2, 2);
  all_ask(table, {"a"});
  table.note_number(4);
  all_ask(table, {"b"});
  CHECK(formed(table) == "a@0 b@1");
  CHECK(table.last()->number == 5);
  table.note_number(2);
  all_ask(table, {"a", "b"});
  CHECK(formed(table) == "a@0 b@1");
  CHECK(table.last()->number == 6);
}

TEST_CASE("a coordinator that takes over does not wait for nodes that have finished") {
  round_table before = table_of(2, 3);
  all_ask(before, {"a", "b", "c"});
  CHECK(formed(before) == "a@0 b@1 c@2");
  before.leave("a", departure::finished);

  round_table table = table_of(2, 3);
  table.learn(*before.last(), before.finished(), start);
  table.join(node("b"), false, start);
  table.join(node("c"), false, start);
  CHECK(!table.deadline());
  CHECK(formed(table, start + 10s) == "none");
  CHECK(table.over().change == round_change::none);
  // One that has heard less is told more by the next.
  round_table late = table_of(2, 3);
  late.learn(*before.last(), {}, start);
  CHECK(late.deadline() == start + 5s);
  late.join(node("b"), false, start);
  late.join(node("c"), false, start);
  late.learn(*before.last(), before.finished(), start);
  CHECK(!late.deadline());
}

TEST_CASE("a node that asked before it heard of its round asks for no other") {
  round_table before = table_of(2, 2);
  all_ask(before, {"a", "b"});
  CHECK(formed(before) == "a@0 b@1");

  round_table table = table_of(2, 2);
  all_ask(table, {"a"});
  table.join(node("b"), false, start);
  table.learn(*before.last(), {}, start);
  CHECK(table.asking() == 0);
  table.lose("b");
  all_ask(table, {"c"});
  CHECK(formed(table) == "none");
  all_ask(table, {"a"});
  CHECK(formed(table) == "a@0 c@1");
}

TEST_CASE("R8: a node that asks no longer takes the last call back") {
  round_table table = table_of(2, 3);
  all_ask(table, {"a", "b"});
  CHECK(table.deadline());
  table.join(node("a"), false, start + 1s);
  CHECK(!table.deadline());
  CHECK(formed(table, start + 60s) == "none");
}

TEST_CASE("a round of more places than ours keeps those that there are") {
  round_table before = table_of(3, 3);
  all_ask(before, {"a", "b", "c"});
  CHECK(formed(before) == "a@0 b@1 c@2");
  round_table table = table_of(2, 2);
  table.learn(*before.last(), {}, start);
  table.lose("a");
  all_ask(table, {"b", "c"});
  CHECK(formed(table) == "c@0 b@1");
  // One without a place of ours takes none of theirs, though it asks first.
  round_table other = table_of(2, 2);
  other.learn(*before.last(), {}, start);
  other.lose("b");
  all_ask(other, {"c", "a"});
  CHECK(formed(other) == "a@0 c@1");
}

TEST_CASE("a node that is away for a moment has its place when it comes back") {
  round_table table = table_of(2, 2);
  all_ask(table, {"a", "b"});
  CHECK(formed(table) == "a@0 b@1");
  table.miss("b", start);
  CHECK(table.deadline() == start + 5s);
  CHECK(formed(table, start + 4s) == "none");
  table.join(node("b"), false, start + 4s);
  CHECK(!table.deadline());
  CHECK(formed(table, start + 9s) == "none");
  CHECK(table.over().change == round_change::none);
  table.miss("b", start + 10s);
  CHECK(formed(table, start + 15s) == "none");
  CHECK(table.over().change == round_change::node_lost);
}

TEST_CASE("a node that is lost while its round is being written ends that round") {
  round_table table = table_of(2, 2);
  all_ask(table, {"a", "b"});
  const std::optional<manyworlds::round> decided = table.decide(start);
  REQUIRE(decided);
  table.lose("b");
  table.publish(*decided);
  CHECK(table.over().change == round_change::node_lost);
  CHECK(table.over().node == "b");
}

TEST_CASE("ranks are sums over places, and over the places of each role") {
  manyworlds::round r;
  r.nodes.emplace_back(node("c", 2, "trainer"), 5);
  r.nodes.emplace_back(node("a", 4, "trainer"), 0);
  r.nodes.emplace_back(node("b", 1, "reader"), 3);
  r.assign_ranks();
  CHECK(r.size() == 7);
  CHECK(r.find("a")->first_rank == 0);
  CHECK(r.find("b")->first_rank == 4);
  CHECK(r.find("b")->first_role_rank == 0);
  CHECK(r.find("b")->role_size == 1);
  CHECK(r.find("c")->rank == 2);
  CHECK(r.find("c")->first_rank == 5);
  CHECK(r.find("c")->first_role_rank == 4);
  CHECK(r.find("c")->role_size == 6);
  CHECK(r.find("d") == nullptr);
}

TEST_CASE("E12: a round is JSON, comes back as it was, and anything else is refused") {
  round_table table = table_of(2, 2);
  table.join(node("a", 8), true, start);
  table.join(node("b \"\\", 1, "reader"), true, start);
  const manyworlds::round r = *table.decide(start);
  const manyworlds::round back = manyworlds::round::from_json(r.to_json());
  CHECK(back.to_json() == r.to_json());
  CHECK(back.run == "job");
  CHECK(back.find("b \"\\")->first_rank == 8);
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      (void)manyworlds::round::from_json(text);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return {};
  };
  CHECK(refusal("") == "not a round: it is no JSON object");
  CHECK(refusal("\x80\x04\x95") == "not a round: it is no JSON object");
  CHECK(refusal("[1]") == "not a round: it is no JSON object");
  CHECK(refusal("{}") == "not a round: \"run\" is no text");
  CHECK(refusal(R"({"run":"x","round":-1,"nodes":[]})") ==
        "not a round: \"round\" is no number");
  CHECK(refusal(R"({"run":"x","round":1})") == "not a round: it has no list of nodes");
  const std::string one = R"({"id":"a","host":"h","role":"r","place":0,"slots":1})";
  CHECK(refusal(R"({"run":"x","round":1,"nodes":[)" + one + "," + one + "]}") ==
        "not a round: two nodes have one place or one id");
  CHECK(refusal(R"({"run":"x","round":1,"nodes":[{"id":7}]})") ==
        "not a round: \"id\" is no text");
  CHECK(refusal(std::string(2 << 20, '[')).find("bytes, at most") != std::string::npos);
}

TEST_SUITE_END();
