// A coroutine of another library awaits what only tasks can.
// marks: every wrong line
// (A compiler says once what is wrong with one type: so each line has a type of its own.)
template <int>
struct other {
  struct promise_type {
    other get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() {}
  };
};
mw::task<int> three() { co_return 3; }
// clang-format off
#ifdef WRONG
other<1> a() { co_await three(); }                  // refused: only a mw::task can await this
other<2> b() { co_await mw::sleep_for(1s); }        // refused: only a mw::task can await this
other<3> c(mw::channel<int>& c) { co_await c.pop(); }  // refused: mw::resume_on(executor, op)
other<4> d() { co_await mw::within(three(), 1s); }  // refused: mw::resume_on(executor, op)
// clang-format on
#else
other<0> all(mw::runtime& rt, mw::channel<int>& c) {
  co_await mw::resume_on(rt.home(), three());
  co_await mw::resume_on(rt.home(), c.pop());
}
#endif
