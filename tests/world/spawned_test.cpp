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

}  // namespace

TEST_CASE("a head that is written in the call lives as long as its operation") {
  pair p;
  auto sent = p.a.rt.start(send_later(p.wa));
  CHECK(p.b.run(receive_heads(p.wb, 2)) == 0);
  p.a.finish(sent);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
