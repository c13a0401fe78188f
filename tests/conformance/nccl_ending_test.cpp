// Aborts as an environment may make them, many at once, and storms of deaths. Sources:
// research 1.6; NVIDIA/nccl issues 829, 992, 1013 and pull request 564 (group abort).
#include "clique.hpp"

using namespace conformance;

namespace {

using ints = std::vector<int>;

SCENARIO_OF_RANKS(abort_in_time) {
  const auto comm = form(me, me.index());
  const device_stream stream;
  const device_array<int> data{ints(4, 1)};
  ncclAllReduce(data.data(), data.data(), 4, ncclInt, ncclSum, comm, stream);
  me.say('f');
  me.hear('a');
  std::atomic<bool> done{false};
  std::thread aborting([&] {
    ncclCommAbort(comm);
    done = true;
  });
  // Blocking or not makes no difference to it.
  CHECK_FALSE(within(hanging, [&] { return done.load(); }));
  CHECK(within(limit, [&] { return done.load(); }));
  aborting.join();
}

SCENARIO_OF_RANKS(abort_never) {
  const auto comm = form(me);
  const device_stream stream;
  const device_array<int> data{ints(4, 1)};
  CHECK_FALSE(aborts_within(comm, 500ms));
  me.say('s');
  me.hear('k');
}

// The ranks of one communicator as threads.
SCENARIO_OF_RANKS(threads) {
  constexpr int count = 3;
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<std::thread> all;
  std::atomic<int> right{0};
  for (int r = 0; r < count; ++r) {
    all.emplace_back([&, r] {
      cudaSetDevice(r);
      ncclComm_t comm = nullptr;
      if (ncclCommInitRank(&comm, count, id, r) != ncclSuccess) return;
      {
        const device_stream stream;
        const device_array<int> data{ints(1000, r)};
        for (int i = 0; i < 20; ++i)
          ncclAllReduce(data.data(), data.data(), 1000, ncclInt, ncclMax, comm, stream);
        if (stream.finished() && data.values() == ints(1000, count - 1)) ++right;
      }
      if (ncclCommDestroy(comm) != ncclSuccess) --right;
    });
  }
  for (auto& each : all) each.join();
  CHECK(right == count);
}

// Rank 0 outlives a storm: each of many communicators' other ends dies or lives.
SCENARIO_OF_RANKS(storm) {
  constexpr std::size_t worlds = 16;
  REQUIRE(cudaSetDevice(me.index() % device_count()) == cudaSuccess);
  std::vector<ncclComm_t> comms(worlds);
  for (auto& comm : comms) comm = form(me, 0);
  std::vector<std::unique_ptr<device_array<int>>> arrays;
  std::vector<std::unique_ptr<device_stream>> streams;
  // Before anything hangs: to allocate may have to wait for that.
  for (std::size_t i = 0; i < worlds; ++i) {
    streams.push_back(std::make_unique<device_stream>());
    arrays.push_back(std::make_unique<device_array<int>>(ints(1000, 1)));
  }
  me.say('f');
  me.hear('g');
  for (std::size_t i = 0; i < worlds; ++i) {
    // As many as go before it is killed.
    const int rounds = me.index() == 1 ? 1'000'000 : 50;
    for (int round = 0; round < rounds; ++round) {
      ncclAllReduce(arrays[i]->data(), arrays[i]->data(), 1000, ncclInt, ncclMax,
                    comms[i], *streams[i]);
      if (settled(comms[i]) != ncclSuccess) break;
    }
  }
  me.hear('d');
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (auto comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  for (const auto& stream : streams) CHECK(stream->finished());
}

}  // namespace

TEST_CASE("an abort blocks for as long as it takes, also where nothing else blocks" *
          unseen) {
  if (!only_emulated()) return;
  crew ranks{abort_in_time, 2, {"EMULATED_NCCL_ABORT=slow"}};
  ranks.share_id();
  for (int i = 0; i < 2; ++i) CHECK(ranks.said(i, 'f'));
  ranks.tell_all('a');
  CHECK(ranks.all_ended_well());
}

TEST_CASE("an abort may never return" * unseen) {
  if (!only_emulated()) return;
  crew ranks{abort_never, 1, {"EMULATED_NCCL_ABORT=stuck"}};
  ranks.share_id();
  CHECK(ranks.said(0, 's'));
  ranks.kill(0);
}

TEST_CASE("ranks may be threads of one process" * unseen) {
  if (!has_devices(3)) return;
  crew ranks{threads, 1};
  CHECK(ranks.all_ended_well());
}

TEST_CASE("who outlives a peer in many communicators can abort them all in one group" *
          unseen) {
  crew ranks{storm, 2};
  for (int i = 0; i < 16; ++i) ranks.share_id();
  for (int i = 0; i < 2; ++i) CHECK(ranks.said(i, 'f'));
  ranks.tell_all('g');
  ranks.kill(1);
  ranks.tell(0, 'd');
  CHECK(ranks.ended_well(0));
}
