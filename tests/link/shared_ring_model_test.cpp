// The ring of cells, falling asleep and parking a slot, in all interleavings.
#include <doctest/doctest.h>

#include <string>

#include "link/model_verdicts.hpp"
#include "link/shared_scenarios.hpp"

TEST_SUITE_BEGIN("link/shared memory");

using namespace scenarios;
using interleaving::holds;
using interleaving::memory_model;
using interleaving::none;

namespace {

void loses_a_wake_up(const verdict& seen) {
  CHECK_MESSAGE(seen.failure.starts_with("a thread waits without end"), seen.failure);
}
void tears_a_cell(const verdict& seen) {
  CHECK_MESSAGE(seen.failure.starts_with("each cell comes once"), seen.failure);
}

}  // namespace

TEST_CASE("no cell is lost, repeated, torn or out of order, also when the ring is full") {
  for (const auto model : {memory_model::tso, memory_model::weak})
    holds(ring_in_batches(model, none, 1, 6));
}

TEST_CASE("a batch shows whole or not at all") {
  for (const auto model : {memory_model::tso, memory_model::weak})
    holds(ring_in_batches(model, none, 2, 3));
}

TEST_CASE("planted: a sequence published before its content is found") {
  for (const auto model : {memory_model::tso, memory_model::weak})
    tears_a_cell(ring_in_batches(model, none, 1, 2, batch_order::published_then_filled));
}

TEST_CASE("planted: the ring without release, or without acquire, is found") {
  tears_a_cell(ring_in_batches(memory_model::weak, {.relaxed_release = true}, 1, 2));
  tears_a_cell(ring_in_batches(memory_model::weak, {.relaxed_acquire = true}, 1, 2));
}

TEST_CASE("a reader that falls asleep is woken for every cell") {
  for (const auto model : {memory_model::tso, memory_model::weak}) {
    holds(parking(model, none, true));
    holds(parking(model, none, false));
  }
}

TEST_CASE("planted: notify without its fence is found") {
  constexpr mutation planted{.without_fences = 0};
  for (const auto model : {memory_model::tso, memory_model::weak})
    loses_a_wake_up(parking(model, planted, true));
  // Parked: on x86 the wake-up's own read-modify-write is a fence.
  loses_a_wake_up(parking(memory_model::weak, planted, false));
  for (const auto model : {memory_model::tso, memory_model::weak})
    loses_a_wake_up(going_cold(model, planted));
}

TEST_CASE("planted: prepare_sleep without its fence is found") {
  constexpr mutation planted{.without_fences = 1};
  for (const auto model : {memory_model::tso, memory_model::weak})
    for (const bool polled : {true, false})
      loses_a_wake_up(parking(model, planted, polled));
}

TEST_CASE(
    "planted: a second look that leaves out the wake-ups, or the polled rings, is "
    "found") {
  const auto without_wake_ups = [](scenarios::receiver&, wake_up_lines& lines,
                                   const auto& look) {
    return lines.receiver.sleeping.raise_unless(look);
  };
  const auto without_rings = [](scenarios::receiver& ear, wake_up_lines&, const auto&) {
    return ear.prepare_sleep([] { return false; });
  };
  for (const auto model : {memory_model::tso, memory_model::weak}) {
    loses_a_wake_up(parking(model, none, false, 2, without_wake_ups));
    loses_a_wake_up(parking(model, none, true, 2, without_rings));
  }
}

TEST_CASE("a slot is parked against a writer, and no cell is left without a wake-up") {
  for (const auto model : {memory_model::tso, memory_model::weak})
    holds(going_cold(model, none));
}

TEST_CASE("planted: parking without its fence is found") {
  for (const auto model : {memory_model::tso, memory_model::weak})
    loses_a_wake_up(going_cold(model, {.without_fences = 1}));
}

TEST_CASE("planted: polled cleared after the second look is found") {
  const auto too_late = [](scenarios::receiver& ear, wake_up_lines&, const auto& look) {
    if (look()) return false;
    return ear.park(0, [] { return false; });
  };
  for (const auto model : {memory_model::tso, memory_model::weak})
    loses_a_wake_up(going_cold(model, none, too_late));
}

TEST_CASE("a writer that waits for room is told when there is some") {
  for (const auto model : {memory_model::tso, memory_model::weak})
    holds(waiting_for_room(model, none));
}

TEST_CASE("planted: waiting for room without a fence on either side is found") {
  for (const auto model : {memory_model::tso, memory_model::weak})
    for (const int thread : {0, 1})
      loses_a_wake_up(waiting_for_room(model, {.without_fences = thread}));
}

TEST_CASE("a failing schedule is printed step by step") {
  const auto seen = parking(memory_model::tso, {.without_fences = 1}, true);
  CHECK(seen.failure.find("\n  reader: ") != std::string::npos);
  CHECK(seen.failure.find("\n  writer: ") != std::string::npos);
  CHECK(seen.failure.find("sequence of cell 0") != std::string::npos);
}

TEST_CASE("a search that is cut off does not pass") {
  interleaving::explorer explorer{memory_model::tso};
  interleaving::atomic<std::uint32_t> word;
  for (const auto* name : {"one", "other"})
    explorer.add_thread(name, [&] {
      for (std::uint32_t at = 0; at != 5; ++at)
        word.fetch_add(1, std::memory_order_acq_rel);
    });
  CHECK(explorer.run(10).complete == false);
}

TEST_SUITE_END();
