// Groups, order and agreement. Unseen on a GPU.
#include "clique.hpp"

using namespace conformance;

namespace {

using ints = std::vector<int>;

// Trap 7: docs "Point-to-point communication": operations that need to progress
// concurrently must be fused in a group.
SCENARIO_OF_RANKS(both_send_first) {
  const auto comm = form(me);
  const device_stream stream;
  const device_array<int> from{ints(many, me.index())};
  const device_array<int> to{ints(many, -1)};
  const int peer = 1 - me.index();
  exchange_first(comm, peer);
  CHECK(ncclSend(from.data(), many, ncclInt, peer, comm, stream) == ncclSuccess);
  CHECK(ncclRecv(to.data(), many, ncclInt, peer, comm, stream) == ncclSuccess);
  CHECK(stream.hangs());
  CHECK(state_of(comm) == ncclSuccess);
  me.say('h');
  me.hear('a');
  CHECK(aborts_within(comm, limit));
  CHECK(stream.finished());
}

// Trap 8: src/transport: a small send may complete into the peer's buffers.
SCENARIO_OF_RANKS(small_sends) {
  const auto comm = form(me);
  const device_stream stream;
  const device_array<int> data{ints(8, me.index())};
  const int peer = 1 - me.index();
  exchange_first(comm, peer);
  if (me.index() == 0) {
    CHECK(ncclSend(data.data(), 8, ncclInt, peer, comm, stream) == ncclSuccess);
    me.say(stream.hangs() ? 'h' : 'd');
  }
  me.hear('r');
  if (me.index() == 1)
    CHECK(ncclRecv(data.data(), 8, ncclInt, peer, comm, stream) == ncclSuccess);
  CHECK(stream.finished());
  CHECK(data.values() == ints(8, 0));
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

// Trap 9: NCCL does not compare what the ranks ask for.
template <class Call>
void disagree(rank& me, Call call) {
  const auto comm = form(me);
  const device_stream stream;
  const device_array<int> data{ints(many, me.index())};
  CHECK(call(me.index(), data.data(), comm, stream) == ncclSuccess);
  CHECK(stream.hangs());
  CHECK(state_of(comm) == ncclSuccess);
  me.say('h');
  me.hear('a');
  CHECK(aborts_within(comm, limit));
  CHECK(stream.finished());
}

SCENARIO_OF_RANKS(other_size) {
  disagree(me, [](int r, int* data, ncclComm_t comm, cudaStream_t stream) {
    const auto count = many - static_cast<std::size_t>(r);
    return r == 0 ? ncclSend(data, count, ncclInt, 1, comm, stream)
                  : ncclRecv(data, count, ncclInt, 0, comm, stream);
  });
}

SCENARIO_OF_RANKS(other_call) {
  disagree(me, [](int r, int* data, ncclComm_t comm, cudaStream_t stream) {
    return r == 0 ? ncclAllReduce(data, data, many, ncclInt, ncclSum, comm, stream)
                  : ncclBroadcast(data, data, many, ncclInt, 1, comm, stream);
  });
}

void all_hang_until_aborted(const scenario& plot) {
  crew ranks{plot, 2};
  ranks.share_id();
  CHECK(ranks.said(0, 'h'));
  CHECK(ranks.said(1, 'h'));
  ranks.tell_all('a');
  CHECK(ranks.all_ended_well());
}

}  // namespace

TEST_CASE("two ranks that send before they receive hang, without an error" * unseen) {
  all_hang_until_aborted(both_send_first);
}

TEST_CASE("a small send may or may not wait for its receive" * unseen) {
  for (const std::string mode : {"eager", "rendezvous"}) {
    crew ranks{small_sends, 2, {"EMULATED_NCCL_SEND=" + mode}};
    ranks.share_id();
    if (emulated())
      CHECK(ranks.said(0, mode == "eager" ? 'd' : 'h'));
    else
      ranks.said(0, 'd');
    ranks.tell_all('r');
    CHECK(ranks.all_ended_well());
  }
}

// On the socket transport a longer message is reported; so only where sizes are not
// compared.
TEST_CASE("ranks that disagree on the size hang, without an error" * unseen) {
  if (!only_emulated()) return;
  all_hang_until_aborted(other_size);
}

TEST_CASE("ranks that disagree on the operation hang, without an error" * unseen) {
  if (!only_emulated()) return;
  all_hang_until_aborted(other_call);
}

TEST_CASE("nothing of a group starts before its outermost end" * unseen) {
  if (!has_devices(2)) return;
  const clique c{2};
  const auto data = c.arrays<int>([](int r) { return ints(4, r + 1); });
  REQUIRE(ncclGroupStart() == ncclSuccess);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int r = 0; r < 2; ++r) {
    auto* buffer = data[static_cast<std::size_t>(r)]->data();
    CHECK(ncclAllReduce(buffer, buffer, 4, ncclInt, ncclSum, c.comm(r), c.stream(r)) ==
          ncclSuccess);
  }
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  CHECK(c.stream(0).finished());
  CHECK(data[0]->values() == ints(4, 1));
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  CHECK(c.stream(0).finished());
  CHECK(c.stream(1).finished());
  CHECK(data[0]->values() == ints(4, 3));
}

TEST_CASE("an end without a start is an invalid usage" * unseen) {
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
}

TEST_CASE("a group belongs to its thread" * unseen) {
  REQUIRE(ncclGroupStart() == ncclSuccess);
  auto elsewhere = ncclSuccess;
  std::thread([&] { elsewhere = ncclGroupEnd(); }).join();
  CHECK(elsewhere == ncclInvalidUsage);
  CHECK(ncclGroupEnd() == ncclSuccess);
}

// Research 1.5: NCCL chains a communicator's operations over its internal stream.
TEST_CASE("the operations of one communicator do not overlap on two streams" * unseen) {
  if (!has_devices(2)) return;
  const clique c{2};
  const auto data = c.arrays<int>([](int r) { return ints(4, r); });
  const auto first = c.arrays<int>([](int r) { return ints(8, r); });
  // As exchange_first.
  c.all([&](int r, ncclComm_t comm, cudaStream_t stream) {
    int* const at = first[static_cast<std::size_t>(r)]->data();
    const auto sent = ncclSend(at, 4, ncclInt, 1 - r, comm, stream);
    return sent == ncclSuccess ? ncclRecv(at + 4, 4, ncclInt, 1 - r, comm, stream) : sent;
  });
  cudaSetDevice(0);
  const device_stream second;
  CHECK(ncclRecv(data[0]->data(), 4, ncclInt, 1, c.comm(0), c.stream(0)) == ncclSuccess);
  CHECK(ncclSend(data[0]->data(), 4, ncclInt, 1, c.comm(0), second) == ncclSuccess);
  cudaSetDevice(1);
  const device_stream other;
  const device_array<int> into{ints(4, -1)};
  CHECK(second.hangs());
  CHECK(ncclSend(data[1]->data(), 4, ncclInt, 0, c.comm(1), c.stream(1)) == ncclSuccess);
  CHECK(ncclRecv(into.data(), 4, ncclInt, 0, c.comm(1), other) == ncclSuccess);
  CHECK(second.finished());
  CHECK(other.finished());
  CHECK(into.values() == ints(4, 1));
}

// src/group.cc ncclAsyncLaunch.
TEST_CASE("a group of blocking and non-blocking communicators is an invalid argument" *
          unseen) {
  cudaSetDevice(0);
  ncclComm_t comms[2] = {};
  for (int i = 0; i < 2; ++i) {
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    auto config = config_with(i);
    ncclCommInitRankConfig(&comms[i], 1, id, 0, &config);
    REQUIRE(settled(comms[i]) == ncclSuccess);
  }
  REQUIRE(ncclGroupStart() == ncclSuccess);
  CHECK(ncclCommFinalize(comms[1]) == ncclSuccess);
  ncclCommFinalize(comms[0]);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
  CHECK(ncclCommAbort(comms[1]) == ncclSuccess);
}

// Trap 17: src/group.cc groupCleanup stores the error in every communicator of the group.
TEST_CASE("a group that fails leaves all its communicators unusable" * unseen) {
  if (!has_devices(2)) return;
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t comms[2] = {};
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int r = 0; r < 2; ++r) {
    cudaSetDevice(r);
    auto config = config_with(0);
    ncclCommInitRankConfig(&comms[r], 2, id, r, &config);
  }
  const auto begun = ncclGroupEnd();
  CHECK((begun == ncclInProgress || begun == ncclSuccess));
  for (auto comm : comms) REQUIRE(settled(comm) == ncclSuccess);
  {
    cudaSetDevice(0);
    const device_stream stream;
    const device_array<int> data{ints(4, 1)};
    const int no_such_rank = 7;
    REQUIRE(ncclGroupStart() == ncclSuccess);
    ncclSend(data.data(), 4, ncclInt, 1, comms[0], stream);
    ncclSend(data.data(), 4, ncclInt, no_such_rank, comms[1], stream);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(state_of(comms[0]) == ncclInvalidArgument);
    CHECK(state_of(comms[1]) == ncclInvalidArgument);
    CHECK(ncclSend(data.data(), 4, ncclInt, 1, comms[0], stream) != ncclSuccess);
    CHECK(stream.finished());
  }
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (auto comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  cudaSetDevice(0);
}
