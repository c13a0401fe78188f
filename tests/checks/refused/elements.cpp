// Types that do not travel as they are.
// cases: 6
// says: trivially copyable structs go as bytes, std::as_bytes(std::span(x))
// says: one object as mw::object(x)
struct point {
  float x, y;
};
mw::task<void> all(mw::world& w) {
  std::vector<point> points(4);
  point one{};
  std::vector<std::string> texts(2);
  std::map<int, int> table;
#ifndef WRONG
  co_await w.send(std::as_bytes(std::span(points)), mw::to{1});
  co_await w.recv(std::as_writable_bytes(std::span(points)), mw::from{1});
  co_await w.send(mw::object(one), mw::to{1});
  co_await w.send(texts, mw::to{1});
#elif WRONG == 1
  co_await w.send(points, mw::to{1});
#elif WRONG == 2
  co_await w.recv(points, mw::from{1});
#elif WRONG == 3
  co_await w.send(one, mw::to{1});
#elif WRONG == 4
  co_await w.send(table, mw::to{1});
#elif WRONG == 5
  co_await w.all_reduce(points, mw::sum);
#elif WRONG == 6
  co_await w.send(7, mw::to{1});
#endif
  (void)table;
}
