// Deaths of ranks, and aborts. Sources: research 1.6 and 3; NCCL 2.28.9 src/proxy.cc,
// src/init.cc ncclCommAbort.
#include "nccl_support.hpp"

#include <algorithm>

using namespace conformance;

namespace {

using ints = std::vector<int>;
using bytes = std::vector<unsigned char>;

bool poisoned(const device_array<unsigned char>& data) {
  const auto values = data.values();
  return std::all_of(values.begin(), values.end(), [](auto v) { return v == 0xA5; });
}

// Rank 0 has a sum in flight that rank 1 never joins, and outlives it.
void outlive(rank& me, ncclResult_t expected) {
  const auto comm = form(me);
  me.say('f');
  if (me.index() == 1) return me.hear('k');
  const device_stream stream;
  const device_array<unsigned char> data{bytes(64, 1)};
  cudaEvent_t end;
  REQUIRE(cudaEventCreateWithFlags(&end, cudaEventDisableTiming) == cudaSuccess);
  CHECK(ncclAllReduce(data.data(), data.data(), 64, ncclUint8, ncclSum, comm, stream) ==
        ncclSuccess);
  CHECK(cudaEventRecord(end, stream) == cudaSuccess);
  me.say('i');
  me.hear('d');
  if (expected == ncclSuccess)
    CHECK_FALSE(within(hanging, [&] { return state_of(comm) != ncclSuccess; }));
  else
    CHECK(within(limit, [&] { return state_of(comm) == expected; }));
  // Reported or not: it hangs until it is aborted.
  CHECK(stream.hangs());
  CHECK(aborts_within(comm, limit));
  // Trap 11: the event of an operation cut short is a success.
  CHECK(outcome_of(end) == cudaSuccess);
  if (emulated()) CHECK(poisoned(data));
  cudaEventDestroy(end);
}

SCENARIO_OF_RANKS(outlive_unseen) { outlive(me, ncclSuccess); }
SCENARIO_OF_RANKS(outlive_told) { outlive(me, ncclRemoteError); }

SCENARIO_OF_RANKS(idle_death) {
  const auto comm = form(me);
  me.say('f');
  if (me.index() == 1) return me.hear('k');
  me.hear('d');
  CHECK_FALSE(within(hanging, [&] { return state_of(comm) != ncclSuccess; }));
  const device_stream stream;
  const device_array<int> data{ints(4, 1)};
  ncclAllReduce(data.data(), data.data(), 4, ncclInt, ncclSum, comm, stream);
  CHECK(within(limit, [&] { return state_of(comm) == ncclRemoteError; }));
  // src/init.cc ncclCommEnsureReady keeps it: no further operation begins.
  CHECK(ncclAllReduce(data.data(), data.data(), 4, ncclInt, ncclSum, comm, stream) ==
        ncclRemoteError);
  CHECK(aborts_within(comm, limit));
}

void kill_one(crew& ranks) {
  ranks.share_id();
  CHECK(ranks.said(0, 'f'));
  CHECK(ranks.said(1, 'f'));
}

// Both have an operation that cannot end; rank 0 aborts first.
SCENARIO_OF_RANKS(abort_beside) {
  const auto comm = form(me);
  const device_stream stream;
  const device_array<int> data{ints(many, me.index())};
  exchange_first(comm, 1 - me.index());
  CHECK(ncclRecv(data.data(), many, ncclInt, 1 - me.index(), comm, stream) ==
        ncclSuccess);
  me.say('f');
  me.hear('a');
  if (me.index() == 0) {
    std::atomic<bool> done{false};
    std::thread aborting([&] {
      ncclCommAbort(comm);
      done = true;
    });
    CHECK(stream.finished());
    CHECK_FALSE(within(hanging, [&] { return done.load(); }));
    me.say('w');
    CHECK(within(limit, [&] { return done.load(); }));
    aborting.join();
  } else {
    CHECK(aborts_within(comm, limit));
  }
}

SCENARIO_OF_RANKS(wait_in_birth) {
  REQUIRE(cudaSetDevice(me.index() % device_count()) == cudaSuccess);
  const auto id = me.shared_id();
  me.hear('g');
  auto config = config_with(0);
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRankConfig(&comm, 2, id, me.index(), &config) == ncclInProgress);
  // Trap 14: the handle is set early, so that there is something to abort.
  REQUIRE(comm != nullptr);
  CHECK(settled(comm, hanging) == ncclInProgress);
  CHECK(aborts_within(comm, limit));
}

}  // namespace

TEST_CASE(
    "a peer's death beside NVLink is never told: the operation hangs until aborted" *
    unseen) {
  if (!only_emulated()) return;
  crew ranks{outlive_unseen, 2, {"EMULATED_NCCL_DEATH=nvlink"}};
  kill_one(ranks);
  CHECK(ranks.said(0, 'i'));
  ranks.kill(1);
  ranks.tell(0, 'd');
  CHECK(ranks.ended_well(0));
}

TEST_CASE("a peer's death over sockets is told after a while; the operation still hangs" *
          unseen) {
  if (!only_emulated()) return;
  crew ranks{outlive_told, 2, {"EMULATED_NCCL_DEATH=socket"}};
  kill_one(ranks);
  CHECK(ranks.said(0, 'i'));
  ranks.kill(1);
  ranks.tell(0, 'd');
  CHECK(ranks.ended_well(0));
}

TEST_CASE("a peer's death is told only while an operation is in flight" * unseen) {
  if (!only_emulated()) return;
  crew ranks{
      idle_death, 2, {"EMULATED_NCCL_DEATH=socket", "EMULATED_NCCL_ERROR_DELAY_MS=10"}};
  kill_one(ranks);
  ranks.kill(1);
  ranks.tell(0, 'd');
  CHECK(ranks.ended_well(0));
}

// Trap 12.
TEST_CASE("an abort waits until the co-located peer aborts" * unseen) {
  if (!only_emulated() || !has_devices(2)) return;
  crew ranks{abort_beside, 2, {"EMULATED_NCCL_ABORT=peers"}};
  kill_one(ranks);
  ranks.tell(0, 'a');
  CHECK(ranks.said(0, 'w'));
  ranks.tell(1, 'a');
  CHECK(ranks.all_ended_well());
}

TEST_CASE("an abort waits until the co-located peer dies" * unseen) {
  if (!only_emulated() || !has_devices(2)) return;
  crew ranks{abort_beside, 2, {"EMULATED_NCCL_ABORT=peers"}};
  kill_one(ranks);
  ranks.tell(0, 'a');
  CHECK(ranks.said(0, 'w'));
  ranks.kill(1);
  CHECK(ranks.ended_well(0));
}

TEST_CASE("a rank with the id of a dead maker waits in its creation until it aborts" *
          unseen) {
  crew ranks{wait_in_birth, 2};
  ranks.share_id();
  ranks.kill(0);
  ranks.tell(1, 'g');
  CHECK(ranks.ended_well(1));
}
