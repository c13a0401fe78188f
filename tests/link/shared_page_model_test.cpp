// The words of a page, that one member writes and all read, in all interleavings.
#include <doctest/doctest.h>

#include <array>
#include <string>

#include "link/interleaving.hpp"
#include "link/model_verdicts.hpp"
#include "link/page_words.hpp"
#include "support/sanitizers.hpp"

TEST_SUITE_BEGIN("link/shared memory");

namespace {

namespace shm = manyworlds::shm;
using interleaving::explorer;
using interleaving::holds;
using interleaving::memory;
using interleaving::memory_model;
using interleaving::mutation;
using interleaving::none;
using interleaving::require;
using interleaving::verdict;

constexpr unsigned two_entries = 2;
using small_page = shm::basic_page_words<memory, two_entries>;
using small_group = shm::basic_page_group<memory, two_entries>;

constexpr std::uint64_t signature_of(std::uint64_t number) { return number * 10; }
constexpr std::uint64_t bytes_of(std::uint64_t number) { return number * 100; }

template <std::size_t Members>
struct paged_world {
  std::array<small_page, Members> pages;
  std::array<const small_page*, Members> all;
  std::array<interleaving::socket_bytes, Members> sockets;

  paged_world() {
    for (std::size_t rank = 0; rank != Members; ++rank) {
      all[rank] = &pages[rank];
      const auto of_member = " of member " + std::to_string(rank);
      name(pages[rank].waits, "waits" + of_member);
      for (std::size_t at = 0; at != two_entries; ++at) {
        auto& e = pages[rank].entries[at];
        const auto which = " " + std::to_string(at) + of_member;
        name(e.number, "number" + which);
        name(e.signature, "signature" + which);
        name(e.bytes, "bytes" + which);
      }
    }
  }

  template <class Look>
  void wait(small_group& group, std::size_t self, std::uint64_t waits, Look look,
            bool looks_again = true) {
    while (!look()) {
      if (group.prepare_sleep(waits, [&] { return looks_again && look(); })) {
        sockets[self].sleep();
      }
      group.cancel_sleep();
    }
  }
  void enter(small_group& group, std::uint64_t number, bool is_root = false) {
    group.publish(number, signature_of(number), bytes_of(number));
    group.wake_sleepers(number, is_root,
                        [this](std::size_t rank) { sockets[rank].write(); });
  }
};

void expect_whole(small_group& group, std::size_t rank, std::uint64_t number) {
  const shm::page_look seen = group.look(rank, number);
  require(seen.number == number, "an entry that is read is not written over");
  require(seen.signature == signature_of(number) && seen.bytes == bytes_of(number),
          "an entry shows whole");
}

/// Barriers from 1 to `last`: each member enters, waits for all, and reads what they say.
template <std::size_t Members>
verdict page_barriers(memory_model model, mutation planted, std::uint64_t last,
                      bool looks_again = true) {
  explorer e{model, planted};
  paged_world<Members> world;
  for (std::size_t self = 0; self != Members; ++self) {
    e.add_thread("member " + std::to_string(self), [&world, self, last, looks_again] {
      std::array<std::uint64_t, Members> known{};
      small_group group(world.pages[self], world.all, known, self);
      for (std::uint64_t number = 1; number <= last; ++number) {
        const std::uint64_t room = small_group::room_for(number);
        require(room == 0 || group.all_have_entered(room),
                "one who has ended a barrier has room for the next");
        world.enter(group, number);
        world.wait(
            group, self, shm::page_wait::for_all(number),
            [&] { return group.all_have_entered(number); }, looks_again);
        for (std::size_t rank = 0; rank != Members; ++rank) {
          if (rank != self) expect_whole(group, rank, number);
        }
      }
    });
  }
  return e.run();
}

/// Member 0 gives and reads nothing; the others wait for it, and it for room.
template <std::size_t Members>
verdict page_broadcasts(memory_model model, mutation planted, std::uint64_t last,
                        bool waits_for_room = true, bool knows_root = true) {
  explorer e{model, planted};
  paged_world<Members> world;
  for (std::size_t self = 0; self != Members; ++self) {
    e.add_thread("member " + std::to_string(self), [=, &world] {
      std::array<std::uint64_t, Members> known{};
      small_group group(world.pages[self], world.all, known, self);
      for (std::uint64_t number = 1; number <= last; ++number) {
        const std::uint64_t room = small_group::room_for(number);
        if (room != 0 && waits_for_room) {
          world.wait(group, self, shm::page_wait::for_all(room),
                     [&] { return group.all_have_entered(room); });
        }
        world.enter(group, number, knows_root && self == 0);
        if (self == 0) continue;
        world.wait(group, self, shm::page_wait::for_member(0, number),
                   [&] { return group.has_entered(0, number); });
        expect_whole(group, 0, number);
      }
    });
  }
  return e.run();
}

/// Two members enter different things and read nothing: does one of them see it?
verdict page_disagreement(memory_model model, mutation planted) {
  explorer e{model, planted};
  paged_world<2> world;
  std::array<bool, 2> found{};
  for (std::size_t self = 0; self != 2; ++self) {
    e.add_thread("member " + std::to_string(self), [&world, &found, self] {
      std::array<std::uint64_t, 2> known{};
      small_group group(world.pages[self], world.all, known, self);
      group.publish(1, self + 1, 0);
      const shm::page_look seen = group.look(1 - self, 1);
      found[self] = seen.number == 1 && seen.signature != self + 1;
    });
  }
  e.at_the_end([&] {
    require(found[0] || found[1], "the later of two members finds that they disagree");
  });
  return e.run();
}

void sleeps_without_end(const verdict& seen) {
  CHECK_MESSAGE(seen.failure.starts_with("a thread waits without end"), seen.failure);
}

}  // namespace

TEST_CASE(
    "pages: a member that falls asleep in a barrier is woken, and entries are whole") {
  holds(page_barriers<2>(memory_model::tso, none, 3));
  holds(page_barriers<2>(memory_model::weak, none, 2));
  // Five seconds, and minutes under a sanitizer, which has nothing to add to it.
  if (manyworlds::testing::has_address_sanitizer ||
      manyworlds::testing::has_thread_sanitizer) {
    return;
  }
  holds(page_barriers<3>(memory_model::tso, none, 1));
}

TEST_CASE("pages: a root and its readers wake each other, and no entry is lost") {
  for (const auto model : {memory_model::tso, memory_model::weak}) {
    holds(page_broadcasts<2>(model, none, 3));
  }
  holds(page_broadcasts<3>(memory_model::tso, none, 1));
}

TEST_CASE("pages: of two members that disagree the later one sees it") {
  for (const auto model : {memory_model::tso, memory_model::weak}) {
    holds(page_disagreement(model, none));
  }
}

TEST_CASE("pages, planted: entering or sleeping without a fence loses a wake-up") {
  for (const auto model : {memory_model::tso, memory_model::weak}) {
    for (const int thread : {0, 1}) {
      sleeps_without_end(page_barriers<2>(model, {.without_fences = thread}, 1));
      sleeps_without_end(page_broadcasts<2>(model, {.without_fences = thread}, 1));
      const verdict seen = page_disagreement(model, {.without_fences = thread});
      CHECK_MESSAGE(seen.failure.starts_with("the later of two members"), seen.failure);
    }
  }
}

TEST_CASE("pages, planted: sleeping without a second look loses a wake-up") {
  for (const auto model : {memory_model::tso, memory_model::weak}) {
    sleeps_without_end(page_barriers<2>(model, none, 1, false));
  }
}

TEST_CASE("pages, planted: a root that leaves waking to the last one loses a wake-up") {
  sleeps_without_end(page_broadcasts<3>(memory_model::tso, none, 1, true, false));
}

TEST_CASE("pages, planted: without release or acquire an entry is torn") {
  for (const mutation planted :
       {mutation{.relaxed_release = true}, mutation{.relaxed_acquire = true}}) {
    const verdict seen = page_broadcasts<2>(memory_model::weak, planted, 1);
    CHECK_MESSAGE(seen.failure.starts_with("an entry shows whole"), seen.failure);
  }
}

TEST_CASE("pages, planted: a root that does not wait for room writes over what is read") {
  for (const auto model : {memory_model::tso, memory_model::weak}) {
    const verdict seen = page_broadcasts<2>(model, none, 3, false);
    CHECK_MESSAGE(seen.failure.starts_with("an entry that is read"), seen.failure);
  }
}

TEST_SUITE_END();
