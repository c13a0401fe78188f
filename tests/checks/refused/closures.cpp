// A temporary lambda that captures by value, in an awaited expression.
// only: g++
// cases: 8
// says: g++ 12 destroys what a temporary lambda captures by value twice
// says: Capture by reference, [&]
// says: name the lambda in a statement before
// says: co_await std::move(kept)
// says: std::bind_front
struct config {
  std::string text;
};

mw::task<void> all(mw::runtime& rt, mw::store& st, mw::worker_thread& thread,
                   mw::dispatcher& workers, std::shared_ptr<config> cfg) {
  const mw::world_options edge{.name = "edge", .rank = 0, .size = 2};
#ifndef WRONG
  auto body = [cfg](mw::world&) -> mw::task<void> { co_return; };
  co_await mw::keep(rt, st, edge, body);
  co_await mw::keep(rt, st, edge, [&](mw::world&) -> mw::task<void> { co_return; });
  co_await mw::keep(rt, st, edge,
                    std::bind_front([](const std::shared_ptr<config>&,
                                       mw::world&) -> mw::task<void> { co_return; },
                                    cfg));
  mw::task<void> named =
      mw::keep(rt, st, edge, [cfg](mw::world&) -> mw::task<void> { co_return; });
  co_await std::move(named);
#elif WRONG == 1
  co_await mw::keep(rt, st, edge, [cfg](mw::world&) -> mw::task<void> { co_return; });
#elif WRONG == 2
  co_await mw::accept(rt, st, {.service = "s"},
                      [cfg](mw::world&) -> mw::task<void> { co_return; });
#elif WRONG == 3
  co_await mw::connect(rt, st, {.service = "s"},
                       [cfg](mw::world&) -> mw::task<void> { co_return; });
#elif WRONG == 4
  co_await mw::scope::run([cfg](mw::scope&) -> mw::task<void> { co_return; });
#elif WRONG == 5
  co_await mw::offload(thread, [cfg] { return cfg->text.size(); });
#elif WRONG == 6
  co_await workers.call(std::string_view("x"),
                        [cfg](std::span<const mw::worker_status>) { return 0; });
#elif WRONG == 7
  co_await mw::call_in_task([cfg]() -> mw::task<void> { co_return; });
#elif WRONG == 8
  co_await mw::within(
      mw::keep(rt, st, edge, [cfg](mw::world&) -> mw::task<void> { co_return; }), 1s);
#endif
  (void)thread, (void)workers;
}
