// cases: 2
// says: a pointer does not say how many: give std::span(p, count)
mw::task<void> all(mw::world& w, float* p) {
#ifndef WRONG
  co_await w.send(std::span(p, 4), mw::to{1});
#elif WRONG == 1
  co_await w.send(p, mw::to{1});
#elif WRONG == 2
  co_await w.recv(p, mw::from{1});
#endif
}
