// Containers that are gone before the await ends.
// cases: 6
// says: give it a name in a statement before
mw::task<void> all(mw::world& w, mw::dispatcher& workers, mw::served_call& call) {
  std::vector<float> x(4);
#ifndef WRONG
  co_await w.send(x, mw::to{1});
  co_await w.recv(x, mw::from{1});
  co_await w.all_reduce(x, mw::sum);
#elif WRONG == 1
  co_await w.send(std::vector<float>(4), mw::to{1});
#elif WRONG == 2
  co_await w.recv(std::vector<float>(4), mw::from{1});
#elif WRONG == 3
  co_await w.all_reduce(std::vector<float>(4), mw::sum);
#elif WRONG == 4
  co_await w.broadcast(std::string("text"), mw::root{0});
#elif WRONG == 5
  co_await workers.call(std::string("a prompt")).within(1s);
#elif WRONG == 6
  co_await call.reply(std::to_string(7));
#endif
  (void)workers, (void)call;
}
