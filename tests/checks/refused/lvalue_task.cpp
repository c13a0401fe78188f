// says: a task is awaited once, as an rvalue: std::move it
mw::task<int> three() { co_return 3; }
mw::task<void> all() {
  auto t = three();
#ifdef WRONG
  co_await t;
#else
  co_await std::move(t);
#endif
}
