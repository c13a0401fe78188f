// Bodies that give no task.
// cases: 4
// says: a body takes a mw::world& and gives a mw::task<void>
mw::task<void> all(mw::runtime& rt, mw::store& st) {
  const mw::world_options edge{.name = "edge", .rank = 0, .size = 2};
#ifndef WRONG
  co_await mw::keep(rt, st, edge, [&](mw::world&) -> mw::task<void> { co_return; });
#elif WRONG == 1
  co_await mw::keep(rt, st, edge, [&](mw::world&) {});
#elif WRONG == 2
  co_await mw::keep(rt, st, edge, [&](mw::world&) -> mw::task<int> { co_return 1; });
#elif WRONG == 3
  co_await mw::accept(rt, st, {.service = "s"}, [&]() -> mw::task<void> { co_return; });
#elif WRONG == 4
  co_await mw::connect(rt, st, {.service = "s"}, [&](mw::world& w) { (void)w.rank(); });
#endif
}
