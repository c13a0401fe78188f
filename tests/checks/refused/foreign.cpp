// A coroutine of another library awaits what only tasks can.
// cases: 4
// says: only a mw::task can await this
// says: mw::resume_on(executor, op)
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
other all(mw::runtime& rt, mw::channel<int>& c) {
#ifndef WRONG
  co_await mw::resume_on(rt.home(), three());
  co_await mw::resume_on(rt.home(), c.pop());
#elif WRONG == 1
  co_await three();
#elif WRONG == 2
  co_await mw::sleep_for(1s);
#elif WRONG == 3
  co_await c.pop();
#elif WRONG == 4
  co_await mw::within(three(), 1s);
#endif
  (void)rt, (void)c;
}
