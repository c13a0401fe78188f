// Communicators that do not block: trap 13. Sources: NCCL 2.28.9 src/group.cc
// ncclGroupEndInternal, src/init.cc ncclCommEnsureReady, src/enqueue.cc ncclEnqueueCheck.
#include "nccl_support.hpp"

using namespace conformance;

namespace {

using ints = std::vector<int>;

SCENARIO_OF_RANKS(one_at_a_time) {
  const auto comm = form(me, 0);
  {
    const device_stream stream;
    const device_array<int> data{ints(4, me.index() + 1)};
    const auto sum = [&] {
      return ncclAllReduce(data.data(), data.data(), 4, ncclInt, ncclSum, comm, stream);
    };
    CHECK(sum() == ncclInProgress);
    CHECK(settled(comm) == ncclSuccess);
    CHECK(stream.finished());
    CHECK(data.values() == ints(4, 3));
  }
  me.say('d');
  me.hear('e');
  const auto finalizing = ncclCommFinalize(comm);
  CHECK((finalizing == ncclInProgress || finalizing == ncclSuccess));
  CHECK(settled(comm) == ncclSuccess);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

SCENARIO_OF_RANKS(too_early) {
  const auto comm = form(me, 0);
  const device_stream stream;
  const device_array<int> data{ints(4, me.index() + 1)};
  cudaEvent_t event;
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  if (me.index() == 0) {
    CHECK(ncclAllReduce(data.data(), data.data(), 4, ncclInt, ncclSum, comm, stream) ==
          ncclInProgress);
    // Nothing is on the stream yet, so an event there says nothing of the sum.
    CHECK(cudaEventRecord(event, stream) == cudaSuccess);
    CHECK(outcome_of(event) == cudaSuccess);
    CHECK(settled(comm) == ncclSuccess);
    CHECK(cudaEventRecord(event, stream) == cudaSuccess);
    CHECK(stream.hangs());
    CHECK(cudaEventQuery(event) == cudaErrorNotReady);
    cudaGetLastError();
  }
  me.say('f');
  me.hear('a');
  CHECK(aborts_within(comm, limit));
  CHECK(stream.finished());
  cudaEventDestroy(event);
}

SCENARIO_OF_RANKS(second_call) {
  const auto comm = form(me, 0);
  const device_stream stream;
  const device_array<int> data{ints(4, me.index() + 1)};
  const auto sum = [&] {
    return ncclAllReduce(data.data(), data.data(), 4, ncclInt, ncclSum, comm, stream);
  };
  CHECK(sum() == ncclInProgress);
  CHECK(sum() == ncclInvalidArgument);
  if (emulated()) CHECK(settled(comm) == ncclInvalidArgument);
  int count = 0;
  if (emulated()) CHECK(ncclCommCount(comm, &count) == ncclInvalidArgument);
  CHECK(aborts_within(comm, limit));
}

SCENARIO_OF_RANKS(named_group) {
  const auto comm = form(me, 0);
  {
    const device_stream stream;
    const device_array<int> from{ints(4, me.index())};
    const device_array<int> to{ints(4, -1)};
    REQUIRE(ncclGroupStart() == ncclSuccess);
    CHECK(ncclSend(from.data(), 4, ncclInt, 1 - me.index(), comm, stream) == ncclSuccess);
    CHECK(ncclRecv(to.data(), 4, ncclInt, 1 - me.index(), comm, stream) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclInProgress);
    CHECK(settled(comm) == ncclSuccess);
    CHECK(stream.finished());
    CHECK(to.values() == ints(4, 1 - me.index()));
  }
  CHECK(aborts_within(comm, limit));
}

void run(const scenario& plot, std::vector<std::string> environment = {}) {
  crew ranks{plot, 2, std::move(environment)};
  ranks.share_id();
  CHECK(ranks.all_ended_well());
}

}  // namespace

TEST_CASE("a call that does not block is in progress until it is polled to success" *
          unseen) {
  crew ranks{one_at_a_time, 2};
  ranks.share_id();
  CHECK(ranks.said(0, 'd'));
  CHECK(ranks.said(1, 'd'));
  ranks.tell_all('e');
  CHECK(ranks.all_ended_well());
}

TEST_CASE("an event recorded before the poll's success completes too early" * unseen) {
  if (!only_emulated()) return;
  crew ranks{too_early, 2, {"EMULATED_NCCL_ASYNC_MS=100"}};
  ranks.share_id();
  CHECK(ranks.said(0, 'f'));
  CHECK(ranks.said(1, 'f'));
  ranks.tell_all('a');
  CHECK(ranks.all_ended_well());
}

TEST_CASE("a call while another is in progress is an invalid argument, and poisons" *
          unseen) {
  run(second_call, {"EMULATED_NCCL_ASYNC_MS=200"});
}

TEST_CASE("a group tells its progress at its end, its members success" * unseen) {
  run(named_group);
}
