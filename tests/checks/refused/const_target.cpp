// says: what is received into must not be const
mw::task<void> all(mw::world& w) {
#ifdef WRONG
  const std::vector<float> x(4);
#else
  std::vector<float> x(4);
#endif
  co_await w.recv(x, mw::from{1});
}
