// The stall that breaks a world: that of a peer with a reactor that could go on, not of
// one that is blocked in user code (law 8).
#include <future>

#include "world/backend_factory.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

/// The default backend. Its complaints are ours to make.
class complaining final : public backend_factory {
 public:
  std::unique_ptr<backend> make_backend(backend_parts parts) override {
    listener_ = &parts.listener();
    return make_host_backend(std::move(parts));
  }
  /// On the reactor, as a backend does.
  task<void> complain() {
    listener_->must_break(1, cause::stalled, "as a test has it");
    co_return;
  }

 private:
  backend_listener* listener_ = nullptr;
};

constexpr duration heartbeat = 20ms;

task<void> some_beats() { co_await sleep_for(10 * heartbeat); }

}  // namespace

TEST_CASE("a begun transfer that stands still breaks the world of a peer that idles") {
  complaining factory;
  pair p({.name = "stall", .form = 10s}, {.heartbeat = heartbeat, .backends = &factory},
         {.heartbeat = heartbeat});
  // Nothing is to be done at the peer meanwhile: its reactor makes no turn.
  p.a.run(some_beats());
  p.a.run(factory.complain());
  CHECK(p.wa.failure().cause == cause::stalled);
}

TEST_CASE("... and not that of a peer which is blocked in user code") {
  complaining factory;
  pair p({.name = "stall", .form = 10s}, {.heartbeat = heartbeat, .backends = &factory},
         {.heartbeat = heartbeat});
  std::promise<void> may_go_on;
  auto block = [&]() -> task<void> {
    may_go_on.get_future().wait();
    co_return;
  };
  auto blocked = p.b.rt.start(block());
  p.a.run(some_beats());
  p.a.run(factory.complain());
  CHECK(p.wa.state() == world_state::up);
  may_go_on.set_value();
  p.b.finish(blocked);
  check_alive(p.a, p.wa, p.b, p.wb);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
