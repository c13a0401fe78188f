// Lists of very many views.
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

TEST_CASE("a list may have any number of empty views, in front of its data and between") {
  pair p;
  const std::vector<int> front(50'000, 1), back(50'000, 2);
  std::vector<const_buffer_view> views(70'000);
  views.push_back(front);
  views.insert(views.end(), 5'000, const_buffer_view());
  views.push_back(back);
  auto give = [&](world& w) -> task<void> { co_await w.send(views, to{1}); };
  auto take = [](world& w) -> task<std::vector<int>> {
    std::vector<int> got(100'000);
    co_await w.recv(got, from{0});
    co_return got;
  };
  auto giving = p.a.rt.start(give(p.wa));
  const std::vector<int> got = p.b.run(take(p.wb));
  p.a.finish(giving);
  CHECK(std::count(got.begin(), got.begin() + 50'000, 1) == 50'000);
  CHECK(std::count(got.begin() + 50'000, got.end(), 2) == 50'000);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
