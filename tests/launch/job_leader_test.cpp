// The rules by which one agent decides on the workers of a job (L-a to L-e, L60 to L64).
#include "launch/job_leader.hpp"

#include <doctest/doctest.h>

#include <string>

#include "launch/notice_board.hpp"
#include "link/wire.hpp"

using namespace manyworlds;
using namespace manyworlds::detail;
using namespace std::chrono_literals;

namespace {

/// A round of nodes with two workers each, and what they report.
struct led_job {
  explicit led_job(int nodes, restart_scope scope = restart_scope::group,
                   std::size_t restarts = 2)
      : tally(restarts, std::nullopt), how(scope) {
    for (int i = 0; i < nodes; ++i) add("node" + std::to_string(i), i);
    begin();
  }

  void add(const std::string& id, int place, int slots = 2) {
    node_description node("host", slots);
    node.id = id;
    members.nodes.emplace_back(std::move(node), place);
  }
  void begin() {
    ++members.number;
    members.assign_ranks();
    const std::optional<job_orders> before =
        leader ? std::optional(leader->last_orders()) : std::nullopt;
    leader.emplace(members, members.nodes.front().id, how, tally);
    if (before) leader->recall(*before);
  }
  bool hear() {
    const bool has_changed = leader->hear(reports, time_point{} + 1s);
    if (leader->needs_store()) leader->set_store("store:1");
    return has_changed;
  }
  /// All nodes run what was ordered.
  void obey() {
    for (const round_node& node : members.nodes) {
      node_report& r = reports[node.id];
      if (r.attempt == orders().attempt) continue;
      r = {};
      r.attempt = orders().attempt;
      r.leader = members.nodes.front().id;
      r.first_rank = node.first_rank;
      r.world_size = members.size();
    }
  }
  void start() {
    for (const round_node& node : members.nodes) reports[node.id];
    hear();
    obey();
  }
  void fail(const std::string& node, int rank) {
    worker_failure f;
    f.rank = rank;
    f.reason.kind = exit_kind::signaled;
    f.reason.pid = 100 + rank;
    reports[node].failures.push_back(f);
  }
  void end_all() {
    for (auto& [node, r] : reports) r.has_ended = true;
  }
  [[nodiscard]] const job_orders& orders() const { return leader->orders(); }

  round members;
  restart_tally tally;
  restart_scope how;
  std::map<std::string, node_report> reports;
  std::optional<job_leader> leader;
};

}  // namespace

TEST_SUITE_BEGIN("launch");

TEST_CASE("nothing starts before all nodes of a round have reported") {
  led_job job(2);
  job.reports["node0"];
  CHECK(!job.hear());
  CHECK(job.orders().attempt == 0);
  job.reports["node1"];
  CHECK(job.hear());
  CHECK(job.orders().attempt == 1);
  CHECK(job.orders().restarts == 0);
}

TEST_CASE("L-a, L-b: a failed attempt is followed by another one when no worker lives") {
  led_job job(2);
  job.start();
  job.fail("node1", 3);
  job.reports["node1"].has_ended = true;
  job.hear();
  CHECK(job.orders().attempt == 1);
  job.end_all();
  CHECK(job.hear());
  CHECK(job.orders().attempt == 2);
  CHECK(job.orders().restarts == 1);
  CHECK(job.orders().failures.empty());
}

TEST_CASE(
    "L-e, L23: without restarts left the first failure that was told is the cause") {
  led_job job(2, restart_scope::group, 0);
  job.start();
  job.fail("node1", 3);
  job.hear();
  job.fail("node0", 0);
  job.end_all();
  job.hear();
  CHECK(job.orders().verdict == job_verdict::failure);
  REQUIRE(job.orders().failures.size() == 2);
  CHECK(job.orders().failures[0].rank == 3);
}

TEST_CASE("a job has succeeded when all workers have") {
  led_job job(2);
  job.start();
  job.reports["node0"].is_done = job.reports["node0"].has_ended = true;
  job.hear();
  CHECK(job.orders().verdict == job_verdict::none);
  job.reports["node1"].is_done = job.reports["node1"].has_ended = true;
  job.hear();
  CHECK(job.orders().verdict == job_verdict::success);
  CHECK(!job.leader->have_left(job.reports));
  job.reports["node1"].leaves = true;
  CHECK(job.leader->have_left(job.reports));
}

TEST_CASE("L62: a rank gets its next incarnation as long as restarts are left") {
  led_job job(2, restart_scope::worker, 2);
  job.start();
  job.reports["node1"].incarnations[3] = 2;
  CHECK(job.hear());
  CHECK(job.orders().granted.at(3) == 2);
  CHECK(!job.hear());
  job.reports["node1"].incarnations[3] = 3;
  job.reports["node0"].incarnations[0] = 2;
  job.hear();
  CHECK(job.orders().granted.size() + job.orders().denied.size() == 3);
  CHECK(job.orders().restarts == 2);
}

TEST_CASE(
    "L64: a node that comes for a lost one gets its ranks, and no other is touched") {
  led_job job(2, restart_scope::worker, 3);
  job.start();
  job.reports["node1"].incarnations[2] = 2;
  job.hear();
  job.members.nodes.pop_back();
  job.add("spare", 1);
  job.begin();
  const node_report kept = job.reports["node0"];
  job.reports = {{"node0", kept}, {"spare", {}}};
  job.reports["node0"].before = round_end::lost;
  CHECK(job.hear());
  CHECK(job.orders().attempt == 1);
  CHECK(job.orders().restarts == 2);
  CHECK(job.orders().granted.at(2) == 3);
  CHECK(job.orders().granted.at(3) == 2);
  CHECK(!job.orders().granted.contains(0));
}

TEST_CASE("L63: ranks that change are a restart of the group") {
  led_job job(3, restart_scope::worker, 3);
  job.start();
  job.members.nodes.erase(job.members.nodes.begin() + 1);
  job.begin();
  job.reports.erase("node1");
  job.reports["node0"].before = job.reports["node2"].before = round_end::lost;
  CHECK(job.hear());
  CHECK(job.orders().attempt == 2);
  CHECK(job.orders().restarts == 1);
}

TEST_CASE("L64: an attempt goes on where another round was over before it began") {
  led_job job(2, restart_scope::worker, 3);
  job.start();
  for (const char* const comes : {"spare", "other"}) {
    job.members.nodes.pop_back();
    job.add(comes, 1);
    job.begin();
  }
  const node_report kept = job.reports["node0"];
  job.reports = {{"node0", kept}, {"other", {}}};
  job.reports["node0"].before = round_end::lost;
  job.hear();
  CHECK(job.orders().attempt == 1);
  CHECK(job.orders().granted.at(2) == 2);
}

TEST_CASE("L63: an attempt that is told to end does not go on in the next round") {
  led_job job(2, restart_scope::worker, 3);
  job.start();
  job.members.nodes.pop_back();
  job.add("spare", 1);
  job.begin();
  job.reports.erase("node1");
  job.reports["spare"];
  job.reports["node0"].before = round_end::lost;
  job.reports["node0"].is_ending = true;
  job.hear();
  CHECK(job.orders().attempt == 2);
  CHECK(job.orders().store.empty());
  CHECK(job.orders().restarts == 1);
}

TEST_CASE("L-b: a restart that was counted and has not begun is not counted again") {
  led_job job(2, restart_scope::group, 1);
  job.start();
  job.fail("node1", 3);
  job.end_all();
  job.hear();
  CHECK(job.orders().restarts == 1);
  job.begin();
  for (auto& [node, r] : job.reports) r.before = round_end::left;
  job.hear();
  CHECK(job.orders().verdict == job_verdict::none);
  CHECK(job.orders().attempt == 2);
  CHECK(job.orders().restarts == 1);
}

TEST_CASE("L-e: a job that ends by a failure does not say that a node was lost") {
  led_job job(2, restart_scope::group, 0);
  job.start();
  job.fail("node1", 3);
  job.begin();
  for (auto& [node, r] : job.reports) r.before = round_end::left;
  job.hear();
  CHECK(job.orders().verdict == job_verdict::failure);
  CHECK(job.orders().cause.empty());
  CHECK(job.orders().failures.size() == 1);
}

TEST_CASE("L54, L60: a node that drains is no restart, and one that is lost is") {
  led_job job(3, restart_scope::group, 1);
  job.start();
  job.members.nodes.pop_back();
  job.begin();
  job.reports.erase("node2");
  job.reports["node0"].before = job.reports["node1"].before = round_end::left;
  job.hear();
  CHECK(job.orders().attempt == 2);
  CHECK(job.orders().restarts == 0);
  job.obey();
  for (const char* const lost : {"node1", "node0"}) {
    CAPTURE(lost);
    job.begin();
    job.reports["node0"].before = round_end::lost;
    job.hear();
    job.obey();
  }
  CHECK(job.orders().verdict == job_verdict::failure);
  CHECK(job.orders().restarts == 1);
}

TEST_CASE("what fails while a node drains fails because of that") {
  led_job job(2);
  job.start();
  job.reports["node0"].drains = true;
  job.fail("node1", 3);
  job.end_all();
  job.hear();
  CHECK(job.orders().verdict == job_verdict::none);
  CHECK(job.orders().attempt == 1);
}

TEST_CASE("a program that cannot start is not started again") {
  led_job job(2);
  job.start();
  job.fail("node1", 2);
  job.reports["node1"].failures[0].reason.kind = exit_kind::not_started;
  job.end_all();
  job.hear();
  CHECK(job.orders().verdict == job_verdict::failure);
}

TEST_CASE(
    "L60: what a node hears of restarts that are old does not count, and the total "
    "does") {
  const time_point start{};
  restart_tally here(2, 10s);
  here.note(7, 1, start);
  CHECK(here.total() == 7);
  CHECK(here.recent(start) == 1);
  CHECK(here.take(start + 1s));
  CHECK(!here.take(start + 2s));
  here.note(8, 2, start + 2s);
  CHECK(here.recent(start + 10s) == 1);
  CHECK(here.take(start + 10s));
  CHECK(here.total() == 9);
}

TEST_CASE("a node that tells of more restarts than there can be costs nothing") {
  restart_tally here(1000, std::nullopt);
  const std::uint64_t most = ~std::uint64_t{0};
  here.note(most, most, time_point{});
  CHECK(here.total() == most);
  CHECK(!here.has_left(time_point{} + 1s));
}

TEST_CASE("orders fit into a notice however many ranks fail at once") {
  led_job job(1, restart_scope::worker, 0);
  job.members.nodes.clear();
  for (int i = 0; i < 3; ++i) job.add("node" + std::to_string(i), i, 2000);
  job.begin();
  job.start();
  for (const round_node& node : job.members.nodes) {
    for (int i = 0; i < node.slots; ++i)
      job.reports[node.id].incarnations[node.first_rank + i] = 2;
  }
  job.hear();
  job_notice sent;
  sent.orders = job.orders();
  const job_notice got = job_notice::decode(sent.encode());
  CHECK(got.orders->denied.size() == most_told_ranks);
}

TEST_CASE("a node asks for its own ranks alone") {
  led_job job(2, restart_scope::worker, 2);
  job.start();
  job.reports["node1"].incarnations = {{0, 2}, {2, 2}, {17, 2}, {-1, 2}};
  job.hear();
  CHECK(job.orders().granted == std::map<std::int32_t, incarnation_t>{{2, 2}});
  CHECK(job.orders().restarts == 1);
  CHECK(job.orders().denied.empty());
}

TEST_CASE("orders of a store that is no endpoint are refused") {
  job_notice sent;
  sent.orders.emplace();
  for (const char* const store : {"host:1", "[::1]:29500", ""}) {
    sent.orders->store = store;
    CHECK(job_notice::decode(sent.encode()).orders->store == store);
  }
  for (const char* const store : {"host", "host:", "host:x", "host:99999999999", ":1"}) {
    CAPTURE(store);
    sent.orders->store = store;
    CHECK_THROWS_AS((void)job_notice::decode(sent.encode()), wire_error);
  }
}

TEST_CASE("a notice comes back as it was, and what is none is refused") {
  job_notice sent;
  sent.report.attempt = 3;
  sent.report.leader = "node0";
  sent.report.before = round_end::lost;
  sent.report.incarnations = {{4, 2}};
  sent.report.testimonies = {
      {3, worker_testimony::wait{"recv", {"kv", 17, "host"}}, {{"kv", 17, "host"}}},
      {4, std::nullopt, {{"kv", 17, "host"}, {"mesh", 18, "other"}}}};
  sent.report.verdicts = {{"host", "rank 2 (pid 17) is stuck", {3, 4}}};
  sent.orders.emplace();
  sent.orders->store = "127.0.0.1:1";
  sent.orders->granted = {{4, 2}};
  sent.orders->denied = {5};
  worker_failure f;
  f.rank = 5;
  f.host = "host";
  f.traceback = std::string(5000, 'x');
  for (int i = 0; i < 40; ++i) sent.orders->failures.push_back(f);
  const std::string text = sent.encode();
  const job_notice got = job_notice::decode(text);
  CHECK(got.report.attempt == 3);
  CHECK(got.report.incarnations == sent.report.incarnations);
  CHECK(got.report.testimonies == sent.report.testimonies);
  CHECK(got.report.verdicts == sent.report.verdicts);
  REQUIRE(got.orders);
  CHECK(got.orders->granted == sent.orders->granted);
  CHECK(got.orders->denied == sent.orders->denied);
  CHECK(got.orders->failures.size() == 16);
  CHECK(got.orders->failures[0].traceback.size() == 1024);
  for (std::size_t cut = 0; cut < text.size(); cut += 7)
    CHECK_THROWS_AS((void)job_notice::decode(std::string_view(text).substr(0, cut)),
                    wire_error);
}

TEST_CASE("testimonies and verdicts beyond a notice are left out") {
  job_notice sent;
  const far_member accused{std::string(5000, 'w'), 17, std::string(5000, 'h')};
  for (std::int32_t i = 0; i < 5000; ++i) {
    sent.report.testimonies.push_back({i, std::nullopt, {accused}});
    sent.report.verdicts.push_back({"host", std::string(5000, 't'), {i}});
  }
  const std::string text = sent.encode();
  CHECK(text.size() < 70000);
  const job_notice got = job_notice::decode(text);
  CHECK(got.report.testimonies.size() > 50);
  CHECK(got.report.testimonies.back().suspects.front().world.size() == 255);
  CHECK(got.report.verdicts.size() > 20);
  CHECK(got.report.verdicts.back().text.size() == 1024);
}

TEST_CASE("a reader of the board is told the last notice of each node, once") {
  notice_board board;
  notice_board::mark reader;
  board.post(2, "a", "one");
  board.post(2, "b", "other");
  board.post(2, "a", "two");
  board.post(1, "c", "of an older round");
  CHECK(board.since(reader, 2) ==
        std::map<std::string, std::string>{{"a", "two"}, {"b", "other"}});
  CHECK(board.since(reader, 2).empty());
  board.post(2, "b", "again");
  CHECK(board.since(reader, 2) == std::map<std::string, std::string>{{"b", "again"}});
  board.post(3, "a", "of the next round");
  CHECK(board.since(reader, 3).size() == 1);
}

TEST_CASE("notices that do not fit into one message come in several") {
  notice_board board;
  for (int i = 0; i < 10; ++i)
    board.post(1, std::to_string(i), std::string(longest_notice, 'x'));
  notice_board::mark reader;
  std::size_t told = 0;
  for (int i = 0; i < 10 && told < 10; ++i) {
    const std::size_t now = board.since(reader, 1).size();
    CHECK(now > 0);
    told += now;
    CHECK(board.has_more(reader) == (told < 10));
  }
  CHECK(told == 10);
}

TEST_SUITE_END();
