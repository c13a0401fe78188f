// Splits and shrinks: trap 14. Source: NCCL 2.28.9 src/init.cc ncclCommInitChildComm.
#include "nccl_support.hpp"

using namespace conformance;

namespace {

using ints = std::vector<int>;

int rank_in(ncclComm_t comm) {
  int rank = -1;
  CHECK(ncclCommUserRank(comm, &rank) == ncclSuccess);
  return rank;
}

int count_of(ncclComm_t comm) {
  int count = -1;
  CHECK(ncclCommCount(comm, &count) == ncclSuccess);
  return count;
}

void leave(rank& me, ncclComm_t comm) {
  me.say('e');
  me.hear('e');
  CHECK(aborts_within(comm, limit));
}

SCENARIO_OF_RANKS(split_by_parity) {
  const auto parent = form(me, 0);
  me.say('f');
  me.hear('s');
  ncclComm_t child = parent;
  // Success at once, although it is not done: only the parent's state tells.
  CHECK(ncclCommSplit(parent, me.index() % 2, -me.index(), &child, nullptr) ==
        ncclSuccess);
  if (me.index() == 0) {
    CHECK(settled(parent, hanging) == ncclInProgress);
    CHECK(__atomic_load_n(&child, __ATOMIC_ACQUIRE) == nullptr);
    me.say('w');
  }
  CHECK(settled(parent) == ncclSuccess);
  REQUIRE(child != nullptr);
  CHECK(settled(child) == ncclSuccess);
  CHECK(count_of(child) == (me.index() == 1 ? 1 : 2));
  CHECK(rank_in(child) == (me.index() == 0 ? 1 : 0));
  CHECK(sum_over(child, me.index()) == (me.index() == 1 ? 1 : 2));
  leave(me, child);
  CHECK(aborts_within(parent, limit));
}

SCENARIO_OF_RANKS(no_color) {
  const auto parent = form(me);
  ncclComm_t child = parent;
  const int color = me.index() == 0 ? NCCL_SPLIT_NOCOLOR : 3;
  CHECK(ncclCommSplit(parent, color, 0, &child, nullptr) == ncclSuccess);
  CHECK((child == nullptr) == (me.index() == 0));
  leave(me, child);
  CHECK(aborts_within(parent, limit));
}

SCENARIO_OF_RANKS(shrink_by_one) {
  const auto parent = form(me, 0);
  const device_stream stream;
  const device_array<int> data{ints(4, 1)};
  me.say('f');
  if (me.index() == 1) return me.hear('k');
  ncclAllReduce(data.data(), data.data(), 4, ncclInt, ncclSum, parent, stream);
  CHECK(settled(parent) == ncclSuccess);
  CHECK(stream.hangs());
  me.say('i');
  me.hear('s');
  int excluded[] = {3, 1};
  ncclComm_t child = nullptr;
  CHECK(ncclCommShrink(parent, excluded, 2, &child, nullptr, NCCL_SHRINK_ABORT) ==
        ncclSuccess);
  // It waited for the operation it cut short, in this thread, and sorted the caller's
  // list.
  CHECK(stream.finished());
  CHECK(excluded[0] == 1);
  if (me.index() == 0) {
    CHECK(settled(parent, hanging) == ncclInProgress);
    me.say('w');
  }
  CHECK(settled(parent) == ncclSuccess);
  REQUIRE(child != nullptr);
  CHECK(rank_in(child) == me.index() / 2);
  CHECK(sum_over(child, 10) == 20);
  leave(me, child);
  CHECK(aborts_within(parent, limit));
}

SCENARIO_OF_RANKS(wrong_lists) {
  const auto parent = form(me);
  ncclComm_t child = nullptr;
  int myself = me.index();
  CHECK(ncclCommShrink(parent, &myself, 1, &child, nullptr, NCCL_SHRINK_DEFAULT) ==
        ncclInvalidArgument);
  CHECK(ncclCommShrink(parent, &myself, 0, &child, nullptr, NCCL_SHRINK_DEFAULT) ==
        ncclInvalidArgument);
  CHECK(child == nullptr);
  leave(me, parent);
}

SCENARIO_OF_RANKS(parent_aborts) {
  const auto parent = form(me, 0);
  if (me.index() == 0) {
    ncclComm_t child = nullptr;
    CHECK(ncclCommSplit(parent, 0, 0, &child, nullptr) == ncclSuccess);
    CHECK(settled(parent, hanging) == ncclInProgress);
    CHECK(aborts_within(parent, limit));
    CHECK(aborts_within(child, limit));
    me.say('a');
    return;
  }
  me.hear('e');
  CHECK(aborts_within(parent, limit));
}

// src/init.cc: a child that shares resources has its parent's abort flag.
SCENARIO_OF_RANKS(one_flag) {
  REQUIRE(cudaSetDevice(me.index() % device_count()) == cudaSuccess);
  const auto id = me.shared_id();
  auto config = config_with(1);
  config.splitShare = 1;
  ncclComm_t parent = nullptr;
  REQUIRE(ncclCommInitRankConfig(&parent, 2, id, me.index(), &config) == ncclSuccess);
  ncclComm_t child = nullptr;
  CHECK(ncclCommSplit(parent, 0, 0, &child, nullptr) == ncclSuccess);
  const device_stream stream;
  const device_array<int> data{ints(1 << 20, 1)};
  exchange_first(child, 1 - me.index());
  CHECK(ncclRecv(data.data(), data.size(), ncclInt, 1 - me.index(), child, stream) ==
        ncclSuccess);
  CHECK(stream.hangs());
  me.say('e');
  me.hear('e');
  CHECK(aborts_within(parent, limit));
  CHECK(stream.finished());
  CHECK(aborts_within(child, limit));
}

void all_say(crew& ranks, int count, char word) {
  for (int i = 0; i < count; ++i) CHECK(ranks.said(i, word));
}

}  // namespace

TEST_CASE("a split's child is null until the parent's state is success" * unseen) {
  crew ranks{split_by_parity, 3};
  ranks.share_id();
  all_say(ranks, 3, 'f');
  ranks.tell(0, 's');
  CHECK(ranks.said(0, 'w'));
  ranks.tell(1, 's');
  ranks.tell(2, 's');
  all_say(ranks, 3, 'e');
  ranks.tell_all('e');
  CHECK(ranks.all_ended_well());
}

TEST_CASE("a rank without a color takes part in the split and gets no child" * unseen) {
  crew ranks{no_color, 2};
  ranks.share_id();
  all_say(ranks, 2, 'e');
  ranks.tell_all('e');
  CHECK(ranks.all_ended_well());
}

TEST_CASE("survivors shrink past a dead rank, and wait for each other" * unseen) {
  crew ranks{shrink_by_one, 4, {"EMULATED_NCCL_DEATH=nvlink"}};
  ranks.share_id();
  all_say(ranks, 4, 'f');
  ranks.kill(1);
  for (int i : {0, 2, 3}) CHECK(ranks.said(i, 'i'));
  ranks.kill(3);
  ranks.tell(0, 's');
  CHECK(ranks.said(0, 'w'));
  ranks.tell(2, 's');
  for (int i : {0, 2}) CHECK(ranks.said(i, 'e'));
  for (int i : {0, 2}) ranks.tell(i, 'e');
  CHECK(ranks.ended_well(0));
  CHECK(ranks.ended_well(2));
}

TEST_CASE("a shrink that excludes its caller, or no rank, is an invalid argument" *
          unseen) {
  crew ranks{wrong_lists, 2};
  ranks.share_id();
  all_say(ranks, 2, 'e');
  ranks.tell_all('e');
  CHECK(ranks.all_ended_well());
}

TEST_CASE("an abort of the parent ends the child's making" * unseen) {
  crew ranks{parent_aborts, 2};
  ranks.share_id();
  CHECK(ranks.said(0, 'a'));
  ranks.tell(1, 'e');
  CHECK(ranks.all_ended_well());
}

TEST_CASE("a child that shares its parent's resources is aborted with it" * unseen) {
  crew ranks{one_flag, 2};
  ranks.share_id();
  all_say(ranks, 2, 'e');
  ranks.tell_all('e');
  CHECK(ranks.all_ended_well());
}
