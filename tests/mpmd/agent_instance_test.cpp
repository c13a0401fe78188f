// One incarnation of an instance, between its process and the workload that joins.
#include "mpmd/agent_instance.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "../world/world_fixture.hpp"

namespace {

using namespace manyworlds;
using namespace std::chrono_literals;
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
  agent_word progress;
  progress.kind = word_kind::progress;
  progress.steps = 7;
  co_await detail::send_word(w, 0, std::move(progress));
}

}  // namespace

TEST_CASE(
    "graph: a workload that is ready before its start was noticed is ready at once") {
  world_tests::pair of;
  detail::agent_place place;
  place.insecure = true;
  std::vector<instance_life> lives;
  const auto self = std::make_shared<agent_instance>(
      of.a.rt, place, start_of_server(),
      [&](const agent_instance& i) { lives.push_back(i.report().life); });
  const detail::current_outbox no_master;
  const auto agent = [&]() -> task<void> {
    const auto has_heard = [&]() -> task<void> {
      while (self->report().progress != 7) co_await sleep_for(1ms);
    };
    co_await when_any(agent_instance::serve(self, of.wa, "", no_master), has_heard());
    CHECK(lives.empty());
    const auto end_it = [&]() -> task<void> {
      while (lives.empty()) co_await sleep_for(1ms);
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
