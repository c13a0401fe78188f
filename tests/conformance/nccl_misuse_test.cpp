// Misuse that the real library answers with undefined behaviour and the emulation with
// the end of the process: trap 18. Sources: docs "Thread Safety", "ncclCommAbort".
#include "nccl_support.hpp"

using namespace conformance;

namespace {

using ints = std::vector<int>;

SCENARIO_OF_RANKS(use_after_abort) {
  const auto comm = form(me);
  CHECK(ncclCommAbort(comm) == ncclSuccess);
  int count = 0;
  ncclCommCount(comm, &count);
}

SCENARIO_OF_RANKS(poll_after_destroy) {
  const auto comm = form(me);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  state_of(comm);
}

// The first thread is inside a split, which its peer never joins.
SCENARIO_OF_RANKS(two_threads) {
  const auto comm = form(me);
  if (me.index() == 1) {
    me.say('f');
    return me.hear('k');
  }
  std::thread([comm] {
    ncclComm_t child = nullptr;
    ncclCommSplit(comm, 0, 0, &child, nullptr);
  }).detach();
  int count = 0;
  within(limit, [&] { return ncclCommCount(comm, &count) != ncclSuccess; });
}

SCENARIO_OF_RANKS(never_made) {
  int something = 0;
  int count = 0;
  ncclCommCount(reinterpret_cast<ncclComm_t>(&something), &count);
}

}  // namespace

TEST_CASE("a call on an aborted communicator ends the process" * unseen) {
  if (!only_emulated()) return;
  crew ranks{use_after_abort, 1};
  ranks.share_id();
  CHECK(ranks.aborted_saying(0, "ncclCommCount"));
}

TEST_CASE("a poll of a destroyed communicator ends the process" * unseen) {
  if (!only_emulated()) return;
  crew ranks{poll_after_destroy, 1};
  ranks.share_id();
  CHECK(ranks.aborted_saying(0, "use after free"));
}

TEST_CASE("two threads in calls on one communicator end the process" * unseen) {
  if (!only_emulated()) return;
  crew ranks{two_threads, 2};
  ranks.share_id();
  CHECK(ranks.said(1, 'f'));
  CHECK(ranks.aborted_saying(0, "two threads"));
}

TEST_CASE("a communicator that was never made ends the process" * unseen) {
  if (!only_emulated()) return;
  crew ranks{never_made, 1};
  CHECK(ranks.aborted_saying(0, "never made"));
}
