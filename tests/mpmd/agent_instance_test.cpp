// One incarnation of an instance, between its process and the workload that joins.
#include "mpmd/agent_instance.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "../world/world_fixture.hpp"

namespace {

using namespace manyworlds;
using detail::agent_instance;
using detail::agent_word;
using detail::instance_life;
using detail::agent_wire::word_kind;

agent_word start_of_server() {
  agent_word ensure;
  ensure.kind = word_kind::ensure;
  ensure.instance = {"server", 0};
  ensure.incarnation = 1;
  ensure.spec.command = {"/bin/sleep", "60"};
  ensure.spec.waits_until_ready = true;
  return ensure;
}

task<void> say_ready(world& w) {
  agent_word ready;
  ready.kind = word_kind::ready;
  co_await detail::send_word(w, 0, std::move(ready));
  co_await w.leave();
}

}  // namespace

TEST_CASE(
    "graph: a workload that is ready before its start was noticed is ready at once") {
  world_tests::pair of;
  detail::agent_place place;
  place.insecure = true;
  std::vector<instance_life> lives;
  event is_told;
  const auto self = std::make_shared<agent_instance>(of.a.rt, place, start_of_server(),
                                                     [&](const agent_instance& i) {
                                                       lives.push_back(i.report().life);
                                                       is_told.set();
                                                     });
  const detail::current_outbox no_master;
  const auto agent = [&]() -> task<void> {
    // What it said before it left has been heard.
    cause why = cause::none;
    try {
      co_await agent_instance::serve(self, of.wa, "", no_master);
    } catch (const world_error& e) {
      why = e.cause();
    }
    CHECK(why == cause::closed);
    CHECK(lives.empty());
    const auto end_it = [&]() -> task<void> {
      co_await is_told.wait();
      co_await agent_instance::end(self, false);
    };
    co_await when_all(agent_instance::run(self), end_it());
  };
  auto serving = of.a.rt.start(agent());
  of.b.run(say_ready(of.wb));
  of.a.finish(serving);
  REQUIRE_FALSE(lives.empty());
  CHECK(lives.front() == instance_life::ready);
  CHECK(lives.back() == instance_life::ended);
}
