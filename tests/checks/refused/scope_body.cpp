// says: scope::run needs a callable that takes scope& and returns task<void>
mw::task<void> all() {
#ifdef WRONG
  co_await mw::scope::run([&]() -> mw::task<void> { co_return; });
#else
  co_await mw::scope::run([&](mw::scope&) -> mw::task<void> { co_return; });
#endif
}
