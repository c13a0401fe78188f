// Operations that are not awaited in the expression that makes them.
#include <array>

#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

struct wide_head {
  std::array<std::uint64_t, 32> words;
};
wide_head head_of(std::uint64_t word) {
  wide_head h{};
  h.words.fill(word);
  return h;
}

/// The temporary head is gone when this returns.
auto described(world& w, std::uint64_t word) {
  return w.send_message(head_of(word), to{1});
}
task<void> send_later(world& w) {
  auto first = described(w, 3);
  auto second = described(w, 4);
  co_await std::move(first);
  co_await std::move(second).delivered();
}
task<std::uint64_t> receive_heads(world& w, int count) {
  std::uint64_t wrong = 0;
  for (int i = 0; i < count; ++i) {
    const auto m = co_await w.recv_message<wide_head>(from{0});
    for (const std::uint64_t word : m.head.words)
      wrong += word != static_cast<std::uint64_t>(i) + 3;
  }
  co_return wrong;
}

task<void> exchange(world& w, std::vector<float>& x, std::vector<float>& y) {
  const rank_t peer = 1 - w.rank();
  std::vector<float> z(x.size());
  co_await scope::run([&](scope& s) -> task<void> {
    s.spawn(w.send(x, to{peer}));
    s.spawn(w.recv(y, from{peer}).within(10s));
    s.spawn(w.send_message(head_of(3), to{peer}, lane{1}).delivered());
    s.spawn(w.recv_message<wide_head>(from{peer}, lane{1}));
    s.spawn(w.group(w.send(x, to{peer}, lane{2}), w.recv(z, from{peer}, lane{2})));
    co_return;
  });
  co_await w.barrier();
}
task<failure> give_up_beside(world& w, std::vector<float>& y) {
  auto all = scope::run([&](scope& s) -> task<void> {
    s.spawn(w.recv(y, from{1}));
    s.spawn(w.recv(y, from{1}, lane{1}).within(20ms));
    co_return;
  });
  co_return (co_await outcome(std::move(all))).error();
}

}  // namespace

TEST_CASE("operations are spawned as they are, with their modifiers") {
  pair p;
  std::vector<float> ax(1000, 1.0f), ay(1000), bx(1000, 2.0f), by(1000);
  auto first = p.a.rt.start(exchange(p.wa, ax, ay));
  p.b.run(exchange(p.wb, bx, by));
  p.a.finish(first);
  CHECK(ay == std::vector<float>(1000, 2.0f));
  CHECK(by == std::vector<float>(1000, 1.0f));
}

TEST_CASE("law 4: a spawned operation is given back when its scope ends by another") {
  pair p;
  std::vector<float> y(1000);
  CHECK(p.a.run(give_up_beside(p.wa, y)).cause == cause::timed_out);
  std::vector<float> ax(1000, 1.0f), bx(1000, 2.0f), by(1000);
  auto first = p.a.rt.start(exchange(p.wa, ax, y));
  p.b.run(exchange(p.wb, bx, by));
  p.a.finish(first);
  CHECK(y == std::vector<float>(1000, 2.0f));
}

TEST_CASE("a head that is written in the call lives as long as its operation") {
  pair p;
  auto sent = p.a.rt.start(send_later(p.wa));
  CHECK(p.b.run(receive_heads(p.wb, 2)) == 0);
  p.a.finish(sent);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
