// One send to several members: what each of them gets, and how it ends.
#include <array>
#include <stop_token>

#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

constexpr std::array<rank_t, 2> workers{1, 2};
using numbers = std::vector<std::uint64_t>;

task<numbers> receive(world& w, std::size_t size, int messages) {
  numbers got, one(size);
  for (int i = 0; i < messages; ++i) {
    co_await w.recv(one, from{0});
    got.insert(got.end(), one.begin(), one.end());
  }
  co_return got;
}

task<void> tell_all(world& w, const numbers& what, int times) {
  for (int i = 0; i < times; ++i) co_await w.send_to_all(workers, what);
}

task<failure> told(world& w, const numbers& what) {
  co_return (co_await outcome(w.send_to_all(workers, what))).error();
}

}  // namespace

TEST_CASE(
    "send_to_all: each member gets what was sent, in order with other sends to it") {
  trio t;
  // In a cell, in a chunk, in a run of chunks, and offered.
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{100}, std::size_t{4000}, std::size_t{40'000}}) {
    CAPTURE(size);
    const numbers first(size, 1), second(size, 2), third(size, 3);
    auto talk = [&](world& w) -> task<void> {
      co_await w.send_to_all(workers, first);
      co_await w.send(second, to{2});
      co_await w.send_to_all(third);
    };
    auto telling = t.nodes[0].rt.start(talk(t.worlds[0]));
    auto one = t.nodes[1].rt.start(receive(t.worlds[1], size, 2));
    auto two = t.nodes[2].rt.start(receive(t.worlds[2], size, 3));
    const numbers at_one = t.nodes[1].finish(one);
    const numbers at_two = t.nodes[2].finish(two);
    t.nodes[0].finish(telling);
    CHECK(at_one.front() == 1);
    CHECK(at_one.back() == 3);
    CHECK(at_two.front() == 1);
    CHECK(at_two[size] == 2);
    CHECK(at_two.back() == 3);
  }
}

TEST_CASE("send_to_all: a head goes along, and `delivered` waits for every member") {
  trio t;
  struct command {
    std::uint64_t number;
  };
  const numbers data{5, 6, 7};
  auto talk = [&](world& w) -> task<void> {
    co_await w.send_message_to_all(command{42}, workers, data).delivered();
  };
  auto listen = [](world& w) -> task<std::uint64_t> {
    const auto m = co_await w.recv_message<command>(from{0});
    numbers got(m.info.count);
    co_await w.recv(got, from{0});
    co_return m.head.number + got.back();
  };
  auto telling = t.nodes[0].rt.start(talk(t.worlds[0]));
  CHECK(t.nodes[1].run(listen(t.worlds[1])) == 49);
  CHECK_FALSE(telling.wait_for(20ms));
  CHECK(t.nodes[2].run(listen(t.worlds[2])) == 49);
  t.nodes[0].finish(telling);
}

TEST_CASE("law 9: send_to_all waits for the member that takes no more, and only for it") {
  trio t;
  // Far more than a window has room for.
  constexpr int times = 100;
  const numbers what(1000, 9);
  auto telling = t.nodes[0].rt.start(tell_all(t.worlds[0], what, times));
  auto one = t.nodes[1].rt.start(receive(t.worlds[1], what.size(), times));
  CHECK_FALSE(telling.wait_for(50ms));
  CHECK_FALSE(one.is_ready());
  CHECK(t.nodes[2].run(receive(t.worlds[2], what.size(), times)).size() ==
        times * what.size());
  CHECK(t.nodes[1].finish(one).size() == times * what.size());
  t.nodes[0].finish(telling);
}

TEST_CASE("law 10: what is given up is taken back from those that have not accepted it") {
  trio t;
  // Of one size: a receive may still meet what is being taken back.
  const numbers large(100'000, 3), next(large.size(), 4);
  std::stop_source enough;
  auto give_up = [&](world& w) -> task<failure> {
    auto sending = w.send_to_all(workers, large).stop(enough.get_token());
    co_return (co_await outcome(std::move(sending))).error();
  };
  auto telling = t.nodes[0].rt.start(give_up(t.worlds[0]));
  CHECK(t.nodes[1].run(receive(t.worlds[1], large.size(), 1)) == large);
  CHECK_FALSE(telling.wait_for(20ms));
  enough.request_stop();
  CHECK(t.nodes[0].finish(telling).cause == cause::cancelled);
  auto again = t.nodes[0].rt.start(tell_all(t.worlds[0], next, 1));
  CHECK(t.nodes[2].run(receive(t.worlds[2], next.size(), 1)) == next);
  CHECK(t.nodes[1].run(receive(t.worlds[1], next.size(), 1)) == next);
  t.nodes[0].finish(again);
}

TEST_CASE(
    "law 10: a member that has left is named, though the send was given up for another") {
  trio t;
  auto leave = [](world& w) -> task<void> { co_await w.leave(); };
  t.nodes[1].run(leave(t.worlds[1]));
  const numbers large(100'000, 3);
  auto give_up = [&](world& w) -> task<failure> {
    co_return (co_await outcome(w.send_to_all(workers, large).within(30ms))).error();
  };
  const failure f = t.nodes[0].run(give_up(t.worlds[0]));
  CHECK(f.cause == cause::closed);
  CHECK(f.operation_peer == 1);
}

TEST_CASE("send_to_all: a member that has left is named, and the others get it") {
  trio t;
  auto leave = [](world& w) -> task<void> { co_await w.leave(); };
  t.nodes[1].run(leave(t.worlds[1]));
  const numbers what{1, 2, 3};
  const failure f = t.nodes[0].run(told(t.worlds[0], what));
  CHECK(f.cause == cause::closed);
  CHECK(f.operation_peer == 1);
  CHECK(t.nodes[2].run(receive(t.worlds[2], what.size(), 1)) == what);
}

TEST_CASE("send_to_all: a rank that is no other member is refused, and nothing is sent") {
  trio t;
  const numbers what{1};
  auto tell = [&](world& w, rank_t wrong) -> task<failure> {
    const std::array<rank_t, 2> ranks{1, wrong};
    co_return (co_await outcome(w.send_to_all(ranks, what))).error();
  };
  for (const rank_t wrong : {0, 3, -1}) {
    CAPTURE(wrong);
    CHECK(t.nodes[0].run(tell(t.worlds[0], wrong)).cause == cause::invalid_argument);
  }
  const numbers right{2};
  auto telling = t.nodes[0].rt.start(tell_all(t.worlds[0], right, 1));
  CHECK(t.nodes[1].run(receive(t.worlds[1], 1, 1)) == right);
  t.nodes[0].finish(telling);
}

TEST_CASE("law 3: send_to_all that waits ends with its world's first cause") {
  trio t;
  const numbers large(100'000, 3);
  auto telling = t.nodes[0].rt.start(told(t.worlds[0], large));
  CHECK_FALSE(telling.wait_for(20ms));
  t.worlds[2].fail("enough");
  const failure f = t.nodes[0].finish(telling);
  CHECK(f.cause == cause::broken_by_user);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
