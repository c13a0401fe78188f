// cases: 2
// says: a literal would be sent with its terminating zero: give std::string_view
mw::task<void> all(mw::world& w, mw::dispatcher& workers) {
#ifndef WRONG
  co_await w.send(std::string_view("text"), mw::to{1});
#elif WRONG == 1
  co_await w.send("text", mw::to{1});
#elif WRONG == 2
  co_await workers.call("a prompt");
#endif
  (void)workers;
}
