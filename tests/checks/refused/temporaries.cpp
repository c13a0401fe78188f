// Containers that are gone before the await ends.
// marks: every wrong line
using floats = std::vector<float>;
// clang-format off
#ifdef WRONG
void a(mw::world& w) { w.send(floats(4), mw::to{1}); }                        // refused: give it a name in a statement before
void b(mw::world& w) { w.recv(floats(4), mw::from{1}); }                      // refused: give it a name in a statement before
void c(mw::world& w) { w.all_reduce(std::vector<int>(4), mw::sum); }          // refused: give it a name in a statement before
void d(mw::world& w) { w.broadcast(std::string("text"), mw::root{0}); }       // refused: give it a name in a statement before
void e(mw::dispatcher& d) { d.call(std::vector<char>(4)); }                   // refused: give it a name in a statement before
void f(mw::served_call& c) { c.reply(std::vector<std::byte>(4)); }            // refused: give it a name in a statement before
// clang-format on
#else
mw::task<void> all(mw::world& w) {
  floats x(4);
  co_await w.send(x, mw::to{1});
  co_await w.recv(x, mw::from{1});
  co_await w.all_reduce(x, mw::sum);
}
#endif
