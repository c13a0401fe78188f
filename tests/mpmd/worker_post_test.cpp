// The keys by which a worker of a role's session and its controller find each other.
#include "mpmd/worker_post.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <stdexcept>
#include <string>

#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/world/runtime.hpp"

namespace mw = manyworlds;
using mw::detail::free_worker;
using mw::detail::worker_post;
using namespace std::chrono_literals;

namespace {

const mw::instance_id second_worker{"tp", 2};

/// A worker and its controller, each with its own view of one store.
struct both_ends {
  mw::memory_store keys;
  worker_post worker{keys, second_worker};
  worker_post controller{keys, second_worker};
};

}  // namespace

TEST_CASE("a free worker is found, invited, and accepts") {
  both_ends of;
  mw::runtime rt;
  const auto meet = [&]() -> mw::task<void> {
    const auto work = [&]() -> mw::task<std::string> {
      const std::uint64_t number = co_await of.worker.announce(3, 77);
      co_return co_await of.worker.be_invited(number);
    };
    const auto control = [&]() -> mw::task<free_worker> {
      const free_worker found = co_await of.controller.free_after(0);
      const bool is_mine = co_await of.controller.invite(found.number, 1, "come");
      CHECK(is_mine);
      co_await of.controller.accepted(found.number);
      co_return found;
    };
    const auto [told, found] = co_await mw::when_all(work(), control());
    CHECK(told == "come");
    CHECK(found.incarnation == 3);
    CHECK(found.pid == 77);
  };
  rt.run(meet());
}

TEST_CASE("what an earlier controller has invited is recalled, and taken when free") {
  both_ends of;
  mw::runtime rt;
  const auto meet = [&]() -> mw::task<void> {
    const std::uint64_t first = co_await of.worker.announce(1, 5);
    const bool was_invited =
        co_await of.controller.invite(first, 1, "to the earlier one");
    REQUIRE(was_invited);
    CHECK(co_await of.worker.be_invited(first) == "to the earlier one");
    const bool is_invited = co_await of.controller.invite(first, 2, "to the later one");
    CHECK_FALSE(is_invited);
    co_await of.worker.recalled(first);
    const std::uint64_t second = co_await of.worker.announce(1, 5);
    CHECK(second == first + 1);
    const free_worker found = co_await of.controller.free_after(first);
    CHECK(found.number == second);
    const bool is_taken = co_await of.controller.invite(second, 2, "to the later one");
    CHECK(is_taken);
  };
  rt.run(meet());
}

TEST_CASE("graph G-a: an earlier controller takes no worker of a later one") {
  both_ends of;
  mw::runtime rt;
  const auto meet = [&]() -> mw::task<void> {
    const std::uint64_t number = co_await of.worker.announce(1, 5);
    const bool is_invited = co_await of.controller.invite(number, 2, "to the later one");
    REQUIRE(is_invited);
    CHECK(co_await of.worker.be_invited(number) == "to the later one");
    bool is_over = false;
    try {
      static_cast<void>(co_await of.controller.invite(number, 1, "to the earlier one"));
    } catch (const std::runtime_error&) {
      is_over = true;
    }
    CHECK(is_over);
    bool is_recalled = true;
    try {
      co_await mw::within(of.worker.recalled(number), 50ms);
    } catch (const mw::timed_out&) {
      is_recalled = false;
    }
    CHECK_FALSE(is_recalled);
  };
  rt.run(meet());
}

TEST_CASE("graph G-a: an earlier incarnation does not take a later one's place") {
  both_ends of;
  mw::runtime rt;
  const auto meet = [&]() -> mw::task<void> {
    CHECK(co_await of.worker.announce(2, 5) == 1);
    bool is_refused = false;
    try {
      static_cast<void>(co_await of.worker.announce(1, 4));
    } catch (const std::runtime_error&) {
      is_refused = true;
    }
    CHECK(is_refused);
    CHECK((co_await of.controller.last()).incarnation == 2);
  };
  rt.run(meet());
}

TEST_CASE("an invitation is the caller's own when it is made again after a lost answer") {
  both_ends of;
  mw::runtime rt;
  const auto meet = [&]() -> mw::task<void> {
    const std::uint64_t number = co_await of.worker.announce(1, 5);
    for (int tries = 0; tries < 2; ++tries) {
      const bool is_mine = co_await of.controller.invite(number, 1, "come");
      CHECK(is_mine);
    }
  };
  rt.run(meet());
}

TEST_CASE("a worker that dies between its two keys is found all the same") {
  both_ends of;
  mw::runtime rt;
  const auto meet = [&]() -> mw::task<void> {
    // The key that tells of it; nothing wakes those that wait.
    const auto half = [&]() -> mw::task<void> {
      co_await of.keys.set("sessions/tp.2", (free_worker{1, 4, 9}.text()));
    };
    const auto wait = [&]() -> mw::task<free_worker> {
      co_return co_await mw::within(of.controller.free_after(0), 30s);
    };
    const auto [found, nothing] = co_await mw::when_all(wait(), half());
    CHECK(found.incarnation == 4);
    // Its successor has another number.
    CHECK(co_await of.worker.announce(5, 10) == 2);
  };
  rt.run(meet());
}

TEST_CASE("what is no announcement is none") {
  for (const char* const text :
       {"", " ", "1", "1 2", "x 2 3", "1 x 3", "1 2 x", "99999999999999999999 1 1"})
    CHECK(free_worker::of(text).number == 0);
  const free_worker found = free_worker::of(free_worker{7, 2, 31}.text());
  CHECK(found.number == 7);
  CHECK(found.incarnation == 2);
  CHECK(found.pid == 31);
}
