// Worlds of one host are given slots of shared memory by their formation.

#include "host/host_backend.hpp"
#include "support/entries.hpp"
#include "world/backend_factory.hpp"
#include "world_fixture.hpp"

namespace manyworlds::world_tests {

TEST_SUITE_BEGIN("world");

namespace {

using testing::open_descriptors;

/// Keeps the ways to the members for as long as the backend lives, and moves no data.
class keeping_factory final : public backend_factory {
 public:
  std::unique_ptr<backend> make_backend(backend_parts parts) override {
    auto ways = parts.take_connections();
    for (data_channel& way : ways) {
      if (!way.is_open()) continue;
      ++(way.has_slot() ? slots : streams);
      if (!way.has_slot()) continue;
      kept.push_back(way.take_slot());
      highest = std::max(highest, kept.back().index());
    }
    return std::make_unique<host_backend>(parts.home(), parts.listener(),
                                          host_backend_options(), parts.options().rank,
                                          std::vector<socket>(ways.size()));
  }

  int slots = 0;
  int streams = 0;
  unsigned highest = 0;
  std::vector<shm_slot> kept;
};

}  // namespace

TEST_CASE(
    "law 6: hundreds of worlds of one host need the same few slots, and no "
    "descriptors") {
  if (!host_backend::uses_slots) {
    MESSAGE("not tested: the host backend uses no slots");
    return;
  }
  memory_store store;
  keeping_factory of_a;
  keeping_factory of_b;
  node a({.backends = &of_a});
  node b({.backends = &of_b});
  std::size_t descriptors = 0;
  constexpr int rounds = 300;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    world wa;
    world wb;
    form_two({.name = "again", .form = 20s}, store, a, wa, b, wb);
    of_a.kept.clear();
    of_b.kept.clear();
    wa.fail("enough of it");
    a.run(wa.broken());
    b.run(wb.broken());
    if (round == 20) descriptors = open_descriptors();
  }
  CHECK(of_a.slots >= rounds);
  CHECK(of_a.streams == 0);
  CHECK(of_b.streams == 0);
  CHECK(of_a.highest < 128);
  CHECK(open_descriptors() <= descriptors + 2);
  CHECK(a.log.count("no place in the memory") == 0);
}

TEST_SUITE_END();

}  // namespace manyworlds::world_tests
