// A link that has ended delivers nothing more, whatever had come by then.
#include "link/link.hpp"

#include "link/local_discovery.hpp"
#include "link_fixture.hpp"
#include "simulation/connected_pair.hpp"

namespace manyworlds::link_tests {

TEST_SUITE_BEGIN("link");

namespace {

struct recorded_events final : link_listener {
  void link_message(const std::shared_ptr<link>&, std::span<const std::byte>) override {
    ++messages;
    late += ends;
  }
  void slot_offered(const std::shared_ptr<link>&, std::uint64_t, rank_t,
                    shm_slot) override {}
  void link_ended(const std::shared_ptr<link>&, enum cause,
                  const std::string&) noexcept override {
    ++ends;
  }
  int messages = 0;
  int ends = 0;
  int late = 0;
};

task<void> send_message(stream& to) {
  wire_writer out;
  out.put(std::uint32_t{4}).put(std::uint8_t{1}).put(std::uint32_t{42});
  (void)co_await to.send_all(out.view());
}

task<void> end_it(link& l) {
  l.end(cause::silent_peer, "the test ends it");
  co_return;
}

}  // namespace

TEST_CASE("what had come when a link ended is not delivered behind its end") {
  int before = 0;
  int dropped = 0;
  for (std::uint64_t steps = 0; steps < 40; ++steps) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      CAPTURE(steps);
      CAPTURE(seed);
      manyworlds_tests::connected_pair pair(seed);
      runtime_options how;
      how.environment = &pair.sim.add_process("owner");
      runtime owner(how);
      shm::local_discovery none(access::core(owner).peers(), pair.a.home(),
                                pair.a.process(), {});
      recorded_events heard;
      const auto tested = std::make_shared<link>(pair.a.home(), std::move(pair.near),
                                                 stranger(), heard, none);
      pair.a.spawn(tested->run());
      pair.b.spawn(send_message(pair.far));
      for (std::uint64_t i = 0; i < steps; ++i) (void)pair.sim.step();
      pair.a.spawn(end_it(*tested));
      pair.sim.run_for(1s);
      CHECK(heard.ends == 1);
      CHECK(heard.late == 0);
      ++(heard.messages == 0 ? dropped : before);
      pair.a.end();
      pair.b.end();
    }
  }
  CHECK(before > 0);
  CHECK(dropped > 0);
}

TEST_SUITE_END();

}  // namespace manyworlds::link_tests
