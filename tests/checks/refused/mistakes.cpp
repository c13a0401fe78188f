// Many mistakes, each in a function of its own.
// marks: every wrong line
struct wide {
  char bytes[5000];
};
mw::task<int> three() { co_return 3; }
mw::task<void> nothing() { co_return; }
mw::task<void> edge(mw::world&) { co_return; }
using floats = std::vector<float>;

// clang-format off
#ifdef WRONG
// Numbers without a unit, and without what they stand for.
void f1(mw::world& w) { w.barrier().within(5); }                  // refused: a span of time needs a unit
void f2(mw::world& w) { w.barrier().within(true); }               // refused: a span of time needs a unit
void f3(mw::dispatcher& d, floats& x) { d.call(x).within(0.5f); }  // refused: a span of time needs a unit
void f4(mw::reply_stream& r) { r.next().within(5L); }             // refused: a span of time needs a unit
void f5() { mw::within(three(), 5U); }                            // refused: a span of time needs a unit
void f6() { mw::sleep_for(0.5); }                                 // refused: a span of time needs a unit
void f7(mw::world& w, floats& x) { w.send(x, 1); }                // refused: a rank says what it is for
void f8(mw::world& w, floats& x) { w.recv(x, 1L); }               // refused: a rank says what it is for
void f9(mw::world& w) { w.arrival(1U); }                          // refused: a rank says what it is for
void f10(mw::world& w, floats& x) { w.broadcast(x, short{0}); }   // refused: a rank says what it is for
void f11(mw::world& w, floats& x) { w.scatter(x, x, 0LL); }         // refused: a rank says what it is for
void f12(mw::world& w, floats& x) { w.gather(x, x, 0UL); }         // refused: a rank says what it is for
void f13(mw::world& w, floats& x) { w.reduce(x, x, mw::sum, 0ULL); }  // refused: a rank says what it is for
void f14(mw::world& w, floats& x) { w.reduce(x, mw::sum, true); }  // refused: a rank says what it is for
void f15(mw::world& w, floats& x, const floats& c) { w.scatter(c, x, 'a'); }  // refused: a rank says what it is for

// No reduction.
using ints = std::vector<int>;
using longs = std::vector<long>;
void r1(mw::world& w, floats& x) { w.all_reduce(x); }             // refused: a reduction is missing
void r2(mw::world& w, ints& x) { w.all_reduce(x, x); }            // refused: a reduction is missing
void r3(mw::world& w, longs& x) { w.reduce(x, mw::root{0}); }     // refused: a reduction is missing
void r4(mw::world& w, const floats& c, floats& x) { w.reduce(c, x, mw::root{0}); }  // refused: a reduction is missing
void r5(mw::world& w, std::span<float> x) { w.reduce_scatter(x, x); }  // refused: a reduction is missing
void r6(mw::world& w, std::span<int> x) { w.all_reduce(x, 0); }   // refused: a reduction is missing
void r7(mw::world& w, mw::device_view x) { w.all_reduce(x); }     // refused: a reduction is missing

// What is no task.
void g1(mw::runtime& rt) { rt.start([] { return three(); }); }    // refused: run and start take a task
void g2(mw::runtime& rt) { rt.run(nothing); }                     // refused: run and start take a task
void g3(mw::runtime& rt, mw::world& w) { rt.run(w.barrier()); }   // refused: run and start take a task
void g4() { mw::when_all(three, three()); }                       // refused: this cannot be awaited
void g5(mw::task<int> t) { mw::when_any(t, three()); }            // refused: std::move it

// What is awaited or started once, and what has one owner.
void h1(mw::runtime& rt, mw::task<int> t) { rt.start(t); }        // refused: a task runs once: std::move it
void h2(mw::runtime& rt, mw::task<void> t) { rt.run(t); }         // refused: a task runs once: std::move it
mw::world h3(mw::world& w) { return w; }                          // refused: one handle: std::move it
void h4(mw::world);
void h5(mw::world& w) { h4(w); }                                  // refused: or pass a mw::world&
void h6(mw::runtime);
void h7(mw::runtime& rt) { h6(rt); }                              // refused: pass a mw::runtime&
mw::task<void> h8(mw::world& w, floats& x) { auto h = w.send(x, mw::to{1}); co_await h; }  // refused: std::move it, or await it where it is made
mw::task<void> h9(mw::world& w, floats& x) { auto h = w.recv(x, mw::from{1}); const auto m = co_await h; (void)m; }  // refused: std::move it, or await it where it is made
mw::task<void> h10(mw::world& w) { auto h = w.barrier(); (void)co_await mw::outcome(h); }  // refused: std::move it, or await it where it is made
void h11(mw::world& w) { auto h = w.arrival(mw::from{1}); mw::within(h, 5s); }  // refused: std::move it, or await it where it is made
mw::task<void> h12() { co_await 7; }                               // refused: it is no task and no operation

// Bodies and handlers.
mw::task<void> by_value(mw::world) { co_return; }
auto i1(mw::runtime& rt, mw::store& st) {
  return mw::keep(rt, st, {.name = "x", .rank = 0, .size = 2}, by_value);  // refused: a body takes a mw::world&
}
void i2() { mw::call_server s([](mw::served_call&) {}); }         // refused: a handler takes a mw::served_call&
void i3() { mw::call_server s([](int) { return nothing(); }); }   // refused: a handler takes a mw::served_call&

// Heads.
void j1(mw::world& w) { w.send_message(std::string("x"), mw::to{1}); }    // refused: a head is copied byte by byte
void j2(mw::world& w) { w.send_message(wide(), mw::to{1}); }              // refused: a head is at most 4 KiB
void j3(mw::world& w) { w.recv_message<std::vector<int>>(mw::from{1}); }  // refused: a head is copied byte by byte

// Lists, and what is written to.
void k1(mw::world& w, floats& x) { w.send({x, floats(4)}, mw::to{1}); }   // refused: a list holds containers
void k2(mw::world& w, floats& x) { w.send({x, 7}, mw::to{1}); }           // refused: a list holds containers
void k3(mw::world& w, floats& x, const floats& c) { w.recv({x, c}, mw::from{1}); }  // refused: must not be const
void k4(mw::world& w, float* p) { w.send({p, 4}, mw::to{1}); }            // refused: mw::buffer_view(p, count, type)
void k5(mw::world& w, const floats& c) { w.all_reduce(c, mw::sum); }      // refused: must not be const
void k6(mw::world& w, const std::vector<int>& c) { w.broadcast(c, mw::root{0}); }  // refused: must not be const
void k7(mw::world& w, floats& x) { w.all_gather(x, floats(8)); }          // refused: give it a name
void k8(mw::world& w, floats& x, double* p) { w.reduce_scatter(x, p, mw::sum); }   // refused: does not say how many

// What a scope or a body is not.
auto m1() { return mw::scope::run([]() -> mw::task<void> { co_return; }); }  // refused: scope::run needs a callable that takes scope&
void m2(mw::scope& s) { s.spawn([] { return 1; }); }              // refused: spawn and call_in_task need a callable
auto m3(mw::runtime& rt, mw::store& st) {
  return mw::accept(rt, st, {.service = "s"}, [] { return nothing(); });  // refused: a body takes a mw::world&
}
auto m4(mw::runtime& rt, mw::store& st) {
  return mw::connect(rt, st, {.service = "s"}, [](mw::world&) {});  // refused: a body takes a mw::world&
}
auto m5(mw::runtime& rt, mw::store& st) {
  return mw::keep(rt, st, {.name = "x", .rank = 0, .size = 2}, [](mw::world&) { return three(); });  // refused: gives a mw::task<void>
}
void m6(mw::dispatcher& d, floats& x) { d.call(x, [] { return 0; }); }  // refused: pick takes a std::span<const mw::worker_status>
mw::task<void> m7(mw::task<float> t) { co_await t; }                // refused: an operation, or a task, that has a name is awaited once, as an rvalue: std::move it
void m8(mw::world& w, const std::vector<char>& c) { w.recv(c, mw::from{1}); }  // refused: what is received into must not be const
void m9(mw::world& w, mw::scope& s, floats& x) { auto h = w.send(x, mw::to{1}); s.spawn(h); }  // refused: spawn it where it is made, or std::move it
void m10(mw::scope& s, mw::task<int> t) { s.spawn(t); }           // refused: spawn it where it is made, or std::move it
void m11(mw::scope& s, mw::task<void> t) { s.spawn(t); }          // refused: a task runs once: std::move it
void m12(mw::world& w, mw::scope& s) { s.spawn(w); }              // refused: spawn it where it is made, or std::move it
void m13(mw::world& w, mw::scope& s) { s.spawn(w.shrink()); }     // refused: what this await gives owns something
void m14(mw::world& w, mw::scope& s) { s.spawn(mw::outcome(w.barrier())); }  // refused: what this await gives owns something
void m15(mw::world& w, mw::scope& s) { s.spawn(w.send(floats(4), mw::to{1})); }  // refused: give it a name in a statement before
void m16(mw::scope& s) { s.spawn(three); }                        // refused: spawn also takes an operation as it is
// clang-format on
#else
mw::task<void> all(mw::runtime& rt, mw::store& st, mw::world& w, mw::dispatcher& d,
                   floats& x, const floats& c) {
  const mw::world_options options{.name = "x", .rank = 0, .size = 2};
  floats y(8);
  wide object{};
  auto replies = co_await d.call(x).within(5s);
  co_await replies.next().within(std::chrono::milliseconds(5));
  co_await mw::within(three(), 5s);
  co_await mw::sleep_for(500ms);
  co_await w.send({x, c, mw::object(object)}, mw::to{1});
  co_await w.recv({x, y}, mw::from{1});
  co_await w.send_message(7, mw::to{1});
  co_await w.all_reduce(c, x, mw::sum);
  co_await w.all_gather(c, y);
  co_await w.reduce(x, mw::sum, mw::root{0});
  co_await w.reduce(c, x, mw::sum, mw::root{0});
  co_await w.gather(c, x, mw::root{0});
  co_await w.scatter(c, x, mw::root{0});
  co_await w.reduce_scatter(c, x, mw::max);
  co_await mw::keep(rt, st, options, edge);
  auto task = three();
  auto started = rt.start(std::move(task));
  mw::call_server server([](mw::served_call&) { return nothing(); });
  co_await mw::when_all(three(), w.barrier());
  co_await mw::scope::run([&](mw::scope& s) -> mw::task<void> {
    s.spawn([]() -> mw::task<void> { co_return; });
    s.spawn(three());
    s.spawn(w.send(x, mw::to{1}).within(5s));
    auto named = w.recv(y, mw::from{1});
    s.spawn(std::move(named));
    auto all = w.all_reduce(x, mw::sum);
    co_await std::move(all).within(5s);
    co_return;
  });
  auto picked = co_await d.call(x, [&](auto all) { return all.size(); });
}
#endif
