// Types that do not travel as they are.
// marks: every wrong line
struct point {
  float x, y;
};
using points = std::vector<point>;
using pairs = std::vector<std::pair<float, float>>;
// clang-format off
#ifdef WRONG
void a(mw::world& w, points& p) { w.send(p, mw::to{1}); }                // refused: structs go as bytes, std::as_bytes(std::span(x))
void b(mw::world& w, points& p) { w.recv(p, mw::from{1}); }              // refused: structs go as bytes, std::as_bytes(std::span(x))
void c(mw::world& w, point& p) { w.send(p, mw::to{1}); }                 // refused: one object as mw::object(x)
void d(mw::world& w, std::map<int, int>& t) { w.send(t, mw::to{1}); }    // refused: structs go as bytes
void e(mw::world& w, pairs& p) { w.all_reduce(p, mw::sum); }             // refused: structs go as bytes
void f(mw::world& w) { w.send(7, mw::to{1}); }                           // refused: one object as mw::object(x)
void g(mw::world& w, std::vector<bool>& x) { w.send(x, mw::to{1}); }     // refused: this is no contiguous range
void h(mw::world& w, std::list<float>& x) { w.send(x, mw::to{1}); }      // refused: this is no contiguous range
void i(mw::world& w, std::vector<short>& x) { w.recv(x, mw::from{1}); }  // refused: this is no contiguous range
void j(mw::world& w, std::optional<int>& x) { w.send(x, mw::to{1}); }    // refused: one object as mw::object(x)
void k(mw::world& w, float* p) { w.send(p, mw::to{1}); }                 // refused: a pointer does not say how many: give std::span(p, count)
void l(mw::world& w, float* p) { w.recv(p, mw::from{1}); }               // refused: a pointer does not say how many: give std::span(p, count)
void m(mw::world& w) { w.send("text", mw::to{1}); }                      // refused: a literal would be sent with its terminating zero: give std::string_view
void n(mw::dispatcher& d) { d.call("a prompt"); }                        // refused: a literal would be sent with its terminating zero: give std::string_view
// clang-format on
#else
mw::task<void> all(mw::world& w, points& p, float* at) {
  point one{};
  std::vector<std::string> texts(2);
  co_await w.send(std::as_bytes(std::span(p)), mw::to{1});
  co_await w.recv(std::as_writable_bytes(std::span(p)), mw::from{1});
  co_await w.send(mw::object(one), mw::to{1});
  co_await w.send(texts, mw::to{1});
  co_await w.send(std::span(at, 4), mw::to{1});
  co_await w.send(std::string_view("text"), mw::to{1});
}
#endif
