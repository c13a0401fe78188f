// What is spawned and gives no task.
// says: spawn and call_in_task need a callable that takes these arguments and returns
// task<void>
mw::task<void> all() {
  co_await mw::scope::run([&](mw::scope& s) -> mw::task<void> {
#ifdef WRONG
    s.spawn([] { return 1; });
#else
    s.spawn([]() -> mw::task<void> { co_return; });
#endif
    co_return;
  });
}
