// What does nothing unless it is awaited.
// drops: every marked line
// says: nothing is done before it is awaited: co_await it
// says: (void) it if nothing shall wait for its end
mw::task<void> edge(mw::world&) { co_return; }
void all(mw::runtime& rt, mw::store& st, mw::world& w, mw::dispatcher& workers,
         mw::reply_stream& replies, mw::channel<int>& c, mw::event& e, mw::executor& here,
         mw::worker_thread& thread, std::vector<float>& x, mw::device_view d,
         std::stop_token token) {
  w.send(x, mw::to{1});                                             // dropped
  w.send(x, mw::to{1}).within(1s);                                  // dropped
  w.send(x, mw::to{1}).stop(token);                                 // dropped
  w.send(x, mw::to{1}).delivered();                                 // dropped
  w.send(x, mw::to{1}).resume_on(here);                             // dropped
  w.send(x, mw::to{1}).within(1s).delivered();                      // dropped
  w.send(d, mw::to{1}).unmatched();                                 // dropped
  w.send(d, mw::to{1}).enqueue();                                   // dropped
  w.recv(x, mw::from{1}).within(1s);                                // dropped
  w.recv_message<int>(mw::from{1}).within(1s);                      // dropped
  w.barrier().within(1s);                                           // dropped
  w.all_reduce(x, mw::sum).within(1s);                              // dropped
  w.leave();                                                        // dropped
  w.group(w.send(x, mw::to{1}), w.recv(x, mw::from{1}));            // dropped
  workers.call(std::string_view("x"));                              // dropped
  workers.call(std::string_view("x")).within(1s);                   // dropped
  workers.call(std::string_view("x")).stop(token);                  // dropped
  replies.next();                                                   // dropped
  replies.next().within(1s);                                        // dropped
  replies.next().stop(token);                                       // dropped
  c.push(1);                                                        // dropped
  c.pop();                                                          // dropped
  e.wait();                                                         // dropped
  mw::sleep_for(1s);                                                // dropped
  mw::sleep_until({});                                              // dropped
  mw::yield();                                                      // dropped
  mw::within(c.pop(), 1s);                                          // dropped
  mw::stop_on(c.pop(), token);                                      // dropped
  mw::shield(c.pop());                                              // dropped
  mw::when_all(c.pop(), c.pop());                                   // dropped
  mw::when_any(c.pop(), c.pop());                                   // dropped
  mw::outcome(w.barrier());                                         // dropped
  mw::offload(thread, [] {});                                       // dropped
  mw::scope::run([](mw::scope&) -> mw::task<void> { co_return; });  // dropped
  mw::call_in_task([]() -> mw::task<void> { co_return; });          // dropped
  mw::keep(rt, st, {.name = "x", .rank = 0, .size = 2}, edge);      // dropped
  mw::accept(rt, st, {.service = "x"}, edge);                       // dropped
  mw::connect(rt, st, {.service = "x"}, edge);                      // dropped
  rt.start(edge(w));                                                // dropped
  mw::resume_on(here, c.pop());                                     // dropped
}
