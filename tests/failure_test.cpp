#include "manyworlds/failure.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <set>

using namespace manyworlds;
using namespace std::chrono_literals;

namespace {

failure death() {
  failure f(cause::peer_died, {});
  f.world = "left";
  f.epoch = 3;
  f.rank = 1;
  f.peer.pid = 4711;
  f.noticed_after = 400us;
  f.operation = operation_kind::receive;
  return f;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

constexpr auto last_cause = static_cast<int>(cause::wrong_version);

}  // namespace

TEST_SUITE_BEGIN("failure");

TEST_CASE("a death is told with world, epoch, rank, pid, time to notice and operation") {
  const std::string text = death().text();
  INFO(text);
  CHECK(text.starts_with("left@3 broken: rank 1 (pid 4711) died; noticed after "));
  CHECK(text.ends_with("0.4 ms, in recv"));
}

TEST_CASE("the peer and the lane of a message are told beside the member that failed") {
  failure f = death();
  f.operation_peer = 2;
  f.operation_lane = lane(7);
  CHECK(f.text().ends_with("0.4 ms, in recv from rank 2 on lane 7"));
  f.operation = operation_kind::send;
  CHECK(
      f.text().ends_with("rank 1 (pid 4711) died; noticed after at most 0.4 ms, in "
                         "send to rank 2 on lane 7"));
  f.operation = operation_kind::arrival;
  f.operation_lane = std::nullopt;
  CHECK(f.text().ends_with("in arrival from rank 2"));
  f.operation_peer = no_rank;
  f.operation_lane = lane();
  CHECK(f.text().ends_with("in arrival from any on lane 0"));
  f.cause = cause::timed_out;
  f.operation = operation_kind::receive;
  f.operation_peer = 1;
  CHECK(f.text() == "left@3: timed out, in recv from rank 1 on lane 0");
}

TEST_CASE("what is not known is not printed") {
  failure f = death();
  f.peer.pid = 0;
  f.noticed_after = 0ns;
  f.operation = operation_kind::none;
  CHECK(f.text() == "left@3 broken: rank 1 died");
  CHECK(failure().text() == "nothing failed");
  CHECK_FALSE(failure());
}

TEST_CASE("an operation that failed alone does not call its world broken") {
  failure f = death();
  f.cause = cause::timed_out;
  const std::string text = f.text();
  INFO(text);
  CHECK_FALSE(has(text, "broken"));
  CHECK_FALSE(has(text, "rank 1 (pid"));
  CHECK(has(text, "timed out, in recv with rank 1"));
}

TEST_CASE("a world that was not formed says so, with the detail that helps") {
  failure f(cause::not_joined, "not formed within 60 s: waiting for rank 2");
  f.world = "left";
  f.rank = 2;
  f.operation = operation_kind::form;
  CHECK(f.text() ==
        "left not formed: rank 2 did not join (not formed within 60 s: waiting for rank "
        "2)");
}

TEST_CASE("messages that were accepted and not delivered are counted per peer and lane") {
  failure f = death();
  f.undelivered.push_back({1, lane(7), 3, 96});
  CHECK(has(f.text(), "; 3 messages (96 bytes) to rank 1 on lane 7 were not confirmed"));
}

TEST_CASE("every text says who or what it is about, with a rank and without") {
  // What may stand behind the world's name.
  const char* const subjects[] = {"rank 1 ", "a member ",      "this member ",
                                  "the ",    "this is ",       "no member ",
                                  "sizes ",  "element types ", "buffer and message "};
  // Nouns, or said of the operation that stands behind them.
  const std::set<cause> about_operation{cause::cancelled, cause::timed_out,
                                        cause::invalid_argument, cause::overloaded,
                                        cause::handler_failed};
  for (int c = 1; c <= last_cause; ++c) {
    for (const rank_t rank : {no_rank, 1}) {
      for (const operation_kind in : {operation_kind::barrier, operation_kind::form}) {
        failure f(static_cast<cause>(c), {});
        f.world = "m";
        f.epoch = 1;
        f.rank = rank;
        f.operation = in;
        const std::string text = f.text();
        CAPTURE(text);
        const std::string prefix = f.breaks_world() ? "m@1 broken: " : "m@1: ";
        REQUIRE(text.starts_with(prefix));
        if (about_operation.count(f.cause) > 0) continue;
        bool any = false;
        for (const char* subject : subjects)
          any = any || text.substr(prefix.size()).starts_with(subject);
        CHECK(any);
      }
    }
  }
  failure f(cause::closed, {});
  f.world = "m";
  f.epoch = 1;
  f.operation = operation_kind::barrier;
  CHECK(f.text() == "m@1: this member has left, in barrier");
}

TEST_CASE("every cause has a name and a description of its own") {
  std::set<std::string_view> names;
  std::set<std::string_view> descriptions;
  for (int c = 0; c <= last_cause; ++c) {
    names.insert(name_of(static_cast<enum cause>(c)));
    descriptions.insert(describe(static_cast<enum cause>(c)));
  }
  CHECK(names.size() == last_cause + 1);
  CHECK(descriptions.size() == last_cause + 1);
  CHECK_FALSE(names.contains("unknown"));
}

TEST_CASE("causes from a peer's death to a fork break the world, the others do not") {
  for (int c = 0; c <= last_cause; ++c) {
    const failure f(static_cast<enum cause>(c), {});
    const bool is_named_as_breaking =
        c >= static_cast<int>(cause::peer_died) && c <= static_cast<int>(cause::forked);
    CHECK(f.breaks_world() == is_named_as_breaking);
  }
  CHECK_FALSE(failure(cause::closed, {}).breaks_world());
  CHECK(failure(cause::overdue, {}).breaks_world());
}

TEST_CASE("copies of an error share one failure and its text") {
  const world_error first(death());
  const world_error second(first);
  CHECK(&first.failure() == &second.failure());
  CHECK(first.what() == second.what());
  CHECK(first.what() == death().text());
  CHECK(first.cause() == cause::peer_died);
}

TEST_SUITE_END();
