// What a communicator does where NCCL, a peer or the device fails.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <semaphore>
#include <string>
#include <vector>

#include "nccl/device_fixture.hpp"
#include "nccl/freeing_thread.hpp"
#include "nccl/members.hpp"
#include "nccl/own_process.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;

TEST_SUITE_BEGIN("nccl faults");

namespace {

/// The second rank of a world, in a process that is killed. Its id comes over the line.
constexpr const char* peer_test = "a peer of a test that kills it";

struct killed_peer {
  explicit killed_peer(nccl_member& own, reactor_fixture& home)
      : process(peer_test, {"MANYWORLDS_TEST_PEER=1"}) {
    own->make_unique_id(own.done);
    const int before = own.done.times;
    home.run_until([&] { return own.done.times > before; });
    put(process.line(), &own->unique_id(), sizeof(ncclUniqueId));
  }
  own_process process;
};

void create(nccl_members& ranks) {
  const int before = ranks[0].done.times;
  ranks[0]->create(ranks[0]->unique_id(), 0, 2, ranks[0].done);
  ranks.home().run_until([&] { return ranks[0].done.times > before; });
}

/// Ends the process though threads of it are stuck, which is what was tested.
[[noreturn]] void leave_what_is_stuck() { std::_Exit(0); }

void break_and_drop(nccl_members& ranks) {
  ranks.quiesce();
  for (int rank = 0; rank < ranks.count(); ++rank) {
    CHECK_FALSE(ranks[rank]->is_lost());
    ranks[rank].drop_communicator();
  }
}

}  // namespace

TEST_CASE("a peer of a test that kills it" *
          doctest::skip(std::getenv("MANYWORLDS_TEST_PEER") == nullptr)) {
  ncclUniqueId id;
  take(own_process::line_in_process, &id, sizeof id);
  reactor_fixture home(engine_kind::epoll);
  nccl_member own(home, 1, quick_options());
  own->create(id, 1, 2, own.done);
  home.run_until([&] { return own.done.times == 1; });
  REQUIRE(own->error().text == "");
  const char formed = 'f';
  put(own_process::line_in_process, &formed, 1);
  char never;
  take(own_process::line_in_process, &never, 1);
}

TEST_CASE(
    "an operation that its peer died in is got off the stream; over NVLink only the "
    "world knows") {
  NEEDS_OWN_DEVICES(2);
  if (!runs_alone({"EMULATED_NCCL_DEATH=nvlink"})) return;
  nccl_members ranks(1);
  killed_peer peer(ranks[0], ranks.home());
  create(ranks);
  REQUIRE(ranks[0]->error().text == "");
  device_number number(3);
  CHECK(ranks[0].all_reduce(number.get()));
  peer.process.kill();
  CHECK(ranks[0]->poll() == ncclSuccess);
  CHECK_FALSE(ranks[0].has_reached_all());
  break_and_drop(ranks);
}

TEST_CASE("an operation that its peer died in is an error over sockets; and hangs on") {
  NEEDS_OWN_DEVICES(2);
  if (!runs_alone({"EMULATED_NCCL_DEATH=socket", "EMULATED_NCCL_ERROR_DELAY_MS=10"}))
    return;
  nccl_members ranks(1);
  killed_peer peer(ranks[0], ranks.home());
  create(ranks);
  REQUIRE(ranks[0]->error().text == "");
  device_number number(3);
  CHECK(ranks[0].all_reduce(number.get()));
  peer.process.kill();
  ranks.await([&] { return ranks[0]->poll() == ncclRemoteError; });
  CHECK_FALSE(ranks[0].has_reached_all());
  ranks.quiesce();
  CHECK_FALSE(ranks[0]->is_lost());
}

TEST_CASE("a peer that dies while the communicator is made ends the making") {
  if (!runs_alone({"EMULATED_NCCL_DEATH=nvlink"})) return;
  device_options options = quick_options();
  options.create = 300ms;
  nccl_members ranks(1, options);
  {
    killed_peer peer(ranks[0], ranks.home());
    peer.process.kill();
  }
  create(ranks);
  CHECK(ranks[0]->error().why == cause::overdue);
  ranks.await([&] { return !ranks[0].device().has_lifecycle(); });
  CHECK(ranks[0].device().stuck() == 0);
}

TEST_CASE("a library that cannot revoke has the communicator aborted, and stays usable") {
  NEEDS_OWN_DEVICES(2);
  if (!runs_alone({"EMULATED_NCCL_VERSION=22304"})) return;
  nccl_members ranks(2);
  ranks.form();
  device_number number(3);
  CHECK(ranks[0].all_reduce(number.get()));
  break_and_drop(ranks);
  for (int rank = 0; rank < 2; ++rank) ranks[rank].make(rank, quick_options());
  ranks.form();
}

// In a group NCCL raises the flags of an abort before it calls CUDA, and so must we.
TEST_CASE("law 2: a thread that waits in cudaFree keeps no abort from its kernel") {
  NEEDS_OWN_DEVICES(2);
  if (!runs_alone({"EMULATED_NCCL_VERSION=22304", "EMULATED_CUDA_DRIVER_LOCK=1"})) return;
  nccl_members ranks(2);
  ranks.form();
  device_number number(3);
  freeing_thread application;
  CHECK(ranks[0].all_reduce(number.get()));
  application.begin();
  CHECK_FALSE(application.has_ended_after(100ms));
  ranks.quiesce();
  CHECK_FALSE(ranks[0]->is_lost());
  CHECK(application.has_ended_after(20s));
}

TEST_CASE("a slow abort keeps no caller waiting, and is not stuck") {
  NEEDS_OWN_DEVICES(2);
  if (!runs_alone({"EMULATED_NCCL_ABORT=slow", "EMULATED_NCCL_REVOKE=slow"})) return;
  nccl_members ranks(2);
  ranks.form();
  device_number number(3);
  CHECK(ranks[0].all_reduce(number.get()));
  const auto begun = std::chrono::steady_clock::now();
  break_and_drop(ranks);
  // The stream is drained long before the call returns.
  const bool is_being_freed = ranks[0].device().has_lifecycle();
  const auto taken = std::chrono::steady_clock::now() - begun;
  // What it takes says nothing on a busy machine.
  if (taken < 1500ms) CHECK(is_being_freed);
  ranks.await([&] { return !ranks[0].device().has_lifecycle(); });
  CHECK(ranks[0].device().stuck() == 0);
}

TEST_CASE("aborts that wait for each other's ranks end together") {
  NEEDS_OWN_DEVICES(3);
  if (!runs_alone({"EMULATED_NCCL_ABORT=peers", "EMULATED_NCCL_REVOKE=peers"})) return;
  nccl_members ranks(3);
  ranks.form();
  device_number number(3);
  CHECK(ranks[0].all_reduce(number.get()));
  break_and_drop(ranks);
  ranks.await([&] {
    for (int rank = 0; rank < 3; ++rank) {
      if (ranks[rank].device().has_lifecycle()) return false;
    }
    return true;
  });
}

TEST_CASE("four communicators that cannot be freed refuse a fifth; the end is bounded") {
  if (!runs_alone({"EMULATED_NCCL_ABORT=stuck", "EMULATED_NCCL_VERSION=22304"})) return;
  device_options options = quick_options();
  options.release = 50ms;
  nccl_members alone(1, options);
  for (int times = 0; times < nccl::device::most_stuck; ++times) {
    REQUIRE(alone[0].device().stuck() == times);
    if (times > 0) alone[0].make(0, options);
    alone.form();
    break_and_drop(alone);
    alone.await([&] { return alone[0].device().stuck() == times + 1; });
  }
  const auto opened = alone[0].registry().open(0, options);
  const auto* refused = std::get_if<nccl::error_message>(&opened);
  REQUIRE(refused);
  REQUIRE(refused->why == cause::device_degraded);
  const auto begun = std::chrono::steady_clock::now();
  alone[0].end();
  REQUIRE(std::chrono::steady_clock::now() - begun < 10s);
  leave_what_is_stuck();
}

TEST_CASE(
    "law 9: creations that not all members come to are counted, and too many refuse "
    "another") {
  NEEDS_DEVICE();
  nccl_members alone(1);
  nccl_member& only = alone[0];
  nccl::device& device = only.device();
  const ncclUniqueId unmet = alone.make_id();
  CHECK(device.roots() == 1);
  only.make(0, quick_options());
  alone.form();
  // To this one all have come.
  CHECK(device.roots() == 1);
  constexpr int others = nccl::device::most_roots - 1;
  device.note_root(others);
  const auto opened = only.registry().open(0, quick_options());
  device.note_root(-others);
  REQUIRE(std::holds_alternative<nccl::error_message>(opened));
  const auto& refused = std::get<nccl::error_message>(opened);
  CHECK(refused.why == cause::device_degraded);
  CHECK(refused.text.find("before all members came") != std::string::npos);
  // So that its thread ends.
  only.make(0, quick_options());
  alone.for_each_done(
      [&](nccl_member& each, int rank) { each->create(unmet, rank, 1, each.done); });
  CHECK(only->error().text == "");
}

TEST_CASE("a revocation that is stuck still gives the buffers back") {
  NEEDS_OWN_DEVICES(2);
  if (!runs_alone({"EMULATED_NCCL_REVOKE=stuck"})) return;
  device_options options = quick_options();
  options.release = 50ms;
  nccl_members ranks(2, options);
  ranks.form();
  device_number number(3);
  REQUIRE(ranks[0].all_reduce(number.get()));
  ranks.quiesce();
  REQUIRE_FALSE(ranks[0]->is_lost());
  ranks[0].drop_communicator();
  ranks.await([&] { return ranks[0].device().stuck() > 0; });
  for (int rank = 0; rank < 2; ++rank) ranks[rank].end();
  leave_what_is_stuck();
}

TEST_CASE("a destruction that is stuck is left behind and counted") {
  if (!runs_alone({"EMULATED_NCCL_DESTROY=stuck"})) return;
  device_options options = quick_options();
  options.release = 50ms;
  nccl_members alone(1, options);
  alone.form();
  alone[0].drop_communicator();
  alone.await([&] { return alone[0].device().stuck() == 1; });
  alone[0].end();
  leave_what_is_stuck();
}

TEST_CASE("a call that NCCL does not return from is got out, and its world breaks") {
  NEEDS_OWN_DEVICES(2);
  if (!runs_alone({"EMULATED_NCCL_FIFO=4"})) return;
  nccl_members ranks(2);
  ranks.form();
  // No rank answers: the fifth call finds the queue full.
  struct many_calls final : work {
    explicit many_calls(nccl_member& of)
        : work([](work& w) noexcept { static_cast<many_calls&>(w).call(); }), of(of) {}
    void call() {
      for (int i = 0; i < 6; ++i) (void)of.all_reduce(number.get());
      returned = true;
    }
    nccl_member& of;
    device_number number{3};
    std::atomic<bool> returned{false};
  } calls(ranks[0]);
  const auto& gate = ranks[0]->gate();
  ranks[0].device().launching().post(calls);
  ranks.await([&] { return gate->blocked_for(ranks.home().get().now()) > 20ms; });
  ranks.quiesce();
  CHECK_FALSE(ranks[0]->is_lost());
  ranks.await([&] { return calls.returned.load(); });
  ranks.await([&] { return ranks[0].device().launching().running() == 0; });
}

TEST_CASE("a communicator that wants for descriptors fails by an error that says so") {
  NEEDS_DEVICE();
  if (!runs_alone({"EMULATED_NCCL_SEND=eager"})) return;
  nccl_members alone(1);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit none = before;
  // Below those that are open: there is no further one.
  none.rlim_cur = 3;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  nccl_member& first = alone[0];
  first->make_unique_id(first.done);
  alone.home().run_until([&] { return first.done.times > 0; });
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  const std::string text = first->error().text;
  INFO(text);
  CHECK(text.find("descriptors are open") != std::string::npos);
  CHECK(text.find("ulimit -n") != std::string::npos);
}

TEST_CASE("an error that ruins the device is seen by all who ask") {
  NEEDS_OWN_DEVICES(2);
  if (!runs_alone({"EMULATED_CUDA_STICKY_AFTER=40"})) return;
  nccl_members ranks(2);
  ranks.form();
  device_number left(3);
  device_number right(4);
  REQUIRE(ranks[0].device().check() == std::nullopt);
  // Each of them is something that the device does.
  for (int times = 0; times < 50 && !ranks[0].device().failed(); ++times) {
    (void)ranks[0].all_reduce(left.get());
    (void)ranks[1].all_reduce(right.get());
    (void)ranks[0].device().check();
  }
  ranks.await([&] { return ranks[0].device().check().has_value(); });
  const auto opened = ranks[0].registry().open(0, quick_options());
  REQUIRE(std::holds_alternative<nccl::error_message>(opened));
  CHECK(std::get<nccl::error_message>(opened).text.find("started again") !=
        std::string::npos);
  break_and_drop(ranks);
}
