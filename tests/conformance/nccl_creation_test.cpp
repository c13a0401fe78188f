// Creation: trap 16, and what the ids and configs are checked for. Source: NCCL 2.28.9
// src/init.cc ncclCommInitRankDev, parseCommConfig, initTransportsRank.
#include "clique.hpp"

#include <cstdlib>

using namespace conformance;

namespace {

using ints = std::vector<int>;

ncclResult_t make_alone(ncclConfig_t config) {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t comm = nullptr;
  const auto result = ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  // An id that no rank uses keeps its root.
  if (comm == nullptr) REQUIRE(ncclCommInitRank(&comm, 1, id, 0) == ncclSuccess);
  CHECK(settled(comm) == ncclSuccess);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  return result;
}

void share_device(rank& me) {
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  const auto id = me.shared_id();
  ncclComm_t comm = nullptr;
  const auto result = ncclCommInitRank(&comm, 2, id, me.index());
  me.say(result == ncclInvalidUsage ? 'u' : result == ncclSuccess ? 's' : 'x');
  me.hear('e');
  CHECK(aborts_within(comm, limit));
}

const scenario same_device{"same_device", share_device};
SCENARIO_OF_RANKS(other_host) {
  ::setenv("NCCL_HOSTID", std::to_string(me.index()).c_str(), 1);
  share_device(me);
}

SCENARIO_OF_RANKS(scalable) {
  REQUIRE(cudaSetDevice(me.index() % device_count()) == cudaSuccess);
  ncclUniqueId ids[] = {me.shared_id(), me.shared_id()};
  auto config = config_with(1);
  ncclComm_t comm = nullptr;
  REQUIRE(ncclCommInitRankScalable(&comm, 2, me.index(), 2, ids, &config) == ncclSuccess);
  int count = 0;
  int rank = -1;
  int device = -1;
  CHECK(ncclCommCount(comm, &count) == ncclSuccess);
  CHECK(ncclCommUserRank(comm, &rank) == ncclSuccess);
  CHECK(ncclCommCuDevice(comm, &device) == ncclSuccess);
  CHECK(count == 2);
  CHECK(rank == me.index());
  CHECK(device == me.index() % device_count());
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

SCENARIO_OF_RANKS(leaves_late) {
  const auto comm = form(me, 0);
  me.say('f');
  me.hear('l');
  ncclCommFinalize(comm);
  if (me.index() == 0) {
    CHECK(settled(comm, hanging) == ncclInProgress);
    me.say('w');
  }
  CHECK(settled(comm) == ncclSuccess);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

SCENARIO_OF_RANKS(register_together) {
  const auto comm = form(me);
  void* memory = nullptr;
  REQUIRE(ncclMemAlloc(&memory, 1 << 21) == ncclSuccess);
  void* registered = nullptr;
  CHECK(ncclCommRegister(comm, memory, 1 << 21, &registered) == ncclSuccess);
  ncclWindow_t window = nullptr;
  CHECK(ncclCommWindowRegister(comm, memory, 1 << 21, &window, NCCL_WIN_COLL_SYMMETRIC) ==
        ncclSuccess);
  CHECK(ncclCommWindowDeregister(comm, window) == ncclSuccess);
  CHECK(ncclCommDeregister(comm, registered) == ncclSuccess);
  CHECK(ncclMemFree(memory) == ncclSuccess);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

}  // namespace

TEST_CASE("a config is checked for its magic, its size and its values" * unseen) {
  if (!has_devices(1)) return;
  const ncclConfig_t good = NCCL_CONFIG_INITIALIZER;
  CHECK(make_alone(good) == ncclSuccess);
  auto config = good;
  config.magic = 1;
  CHECK(make_alone(config) == ncclInvalidArgument);
  config = good;
  config.blocking = 2;
  CHECK(make_alone(config) == ncclInvalidArgument);
  config = good;
  config.maxCTAs = 0;
  CHECK(make_alone(config) == ncclInvalidArgument);
  config = good;
  config.minCTAs = 1;
  CHECK(make_alone(config) == ncclInvalidArgument);
  config.maxCTAs = 4;
  CHECK(make_alone(config) == ncclSuccess);
}

TEST_CASE("a shorter config of an older program is accepted" * unseen) {
  if (!has_devices(1)) return;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.size = offsetof(ncclConfig_t, splitShare);
  config.splitShare = 7;
  CHECK(make_alone(config) == ncclSuccess);
}

TEST_CASE("ranks out of range are invalid arguments" * unseen) {
  if (!has_devices(1)) return;
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRank(&comm, 1, id, 1) == ncclInvalidArgument);
  CHECK(ncclCommInitRank(&comm, 0, id, 0) == ncclInvalidArgument);
  CHECK(comm == nullptr);
  REQUIRE(ncclCommInitRank(&comm, 1, id, 0) == ncclSuccess);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST_CASE("one process has no two ranks on one device" * unseen) {
  if (!has_devices(1)) return;
  const int devices[] = {0, 0};
  ncclComm_t comms[2] = {};
  CHECK(ncclCommInitAll(comms, 2, devices) == ncclInvalidUsage);
}

TEST_CASE("two processes have no two ranks on one device of one host" * unseen) {
  if (!only_emulated() || !has_devices(2)) return;
  crew ranks{same_device, 2};
  ranks.share_id();
  for (int i = 0; i < 2; ++i) CHECK(ranks.said(i, 'u'));
  ranks.tell_all('e');
  CHECK(ranks.all_ended_well());
}

// From 2.30.3; docs "Environment variables".
TEST_CASE("a later version lets processes share a device where it is told to" * unseen) {
  if (!only_emulated()) return;
  crew ranks{
      same_device, 2, {"EMULATED_NCCL_VERSION=23003", "NCCL_MULTI_RANK_GPU_ENABLE=1"}};
  ranks.share_id();
  for (int i = 0; i < 2; ++i) CHECK(ranks.said(i, 's'));
  ranks.tell_all('e');
  CHECK(ranks.all_ended_well());
}

TEST_CASE("processes that are hosts of their own to NCCL may share a device" * unseen) {
  if (!only_emulated()) return;
  crew ranks{other_host, 2};
  ranks.share_id();
  for (int i = 0; i < 2; ++i) CHECK(ranks.said(i, 's'));
  ranks.tell_all('e');
  CHECK(ranks.all_ended_well());
}

TEST_CASE("an id of many hands, and what a communicator says of itself" * unseen) {
  crew ranks{scalable, 2};
  ranks.share_id();
  ranks.share_id();
  CHECK(ranks.all_ended_well());
}

// Research 1.7: both are collective within a node.
TEST_CASE("a finalisation waits for the co-located peer's" * unseen) {
  if (!only_emulated() || !has_devices(2)) return;
  crew ranks{leaves_late, 2};
  ranks.share_id();
  for (int i = 0; i < 2; ++i) CHECK(ranks.said(i, 'f'));
  ranks.tell(0, 'l');
  CHECK(ranks.said(0, 'w'));
  ranks.tell(1, 'l');
  CHECK(ranks.all_ended_well());
}

TEST_CASE("memory is registered, and a window by all" * unseen) {
  crew ranks{register_together, 2};
  ranks.share_id();
  CHECK(ranks.all_ended_well());
}

// Research 1.13: communicators with kernels that do not fit beside each other wait, in
// whatever order their launches came.
TEST_CASE("communicators that over-commit a device wait for each other" * unseen) {
  if (!only_emulated() || !has_devices(2)) return;
  ncclComm_t comms[2][2];
  for (auto& pair : comms) {
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int r = 0; r < 2; ++r) {
      cudaSetDevice(r);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.maxCTAs = 100;
      REQUIRE(ncclCommInitRankConfig(&pair[r], 2, id, r, &config) == ncclSuccess);
    }
    REQUIRE(ncclGroupEnd() == ncclSuccess);
  }
  {
    cudaSetDevice(0);
    const device_stream first;
    const device_stream second;
    const device_array<int> data{ints(4, 1)};
    const device_array<int> more{ints(4, 1)};
    cudaSetDevice(1);
    const device_stream third;
    const device_stream fourth;
    const device_array<int> there{ints(4, 1)};
    const device_array<int> more_there{ints(4, 1)};
    const auto sum = [](const device_array<int>& on, ncclComm_t comm,
                        cudaStream_t stream) {
      return ncclAllReduce(on.data(), on.data(), 4, ncclInt, ncclSum, comm, stream);
    };
    CHECK(sum(data, comms[0][0], first) == ncclSuccess);
    CHECK(first.hangs());
    CHECK(sum(more, comms[1][0], second) == ncclSuccess);
    CHECK(sum(there, comms[1][1], third) == ncclSuccess);
    CHECK(third.hangs());
    CHECK(sum(more_there, comms[0][1], fourth) == ncclSuccess);
    CHECK(fourth.hangs());
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (auto& pair : comms)
      for (auto comm : pair) CHECK(ncclCommAbort(comm) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    for (const auto* stream : {&first, &second, &third, &fourth})
      CHECK(stream->finished());
  }
  cudaSetDevice(0);
}
