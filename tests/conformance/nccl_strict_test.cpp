// What a machine may do and most do not: each is a setting of the emulation, and the
// ranks of a case here are run with it.
#include "nccl_support.hpp"
#include "stream_hooks.h"

#include <memory>
#include <string>
#include <thread>

using namespace conformance;

namespace {

using ints = std::vector<int>;

template <class Function>
Function* find(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// A call beside the rank's own thread. It must return before the rank ends.
class beside {
 public:
  template <class Call>
  explicit beside(Call call)
      : thread_([this, call] {
          result_ = call();
          has_returned_ = true;
        }) {}
  ~beside() { thread_.join(); }
  beside(const beside&) = delete;

  bool waits() const {
    return !within(hanging, [&] { return has_returned_.load(); });
  }
  bool returns() const {
    return within(limit, [&] { return has_returned_.load(); });
  }
  ncclResult_t result() const { return result_; }

 private:
  std::atomic<bool> has_returned_{false};
  ncclResult_t result_ = ncclInProgress;
  std::thread thread_;
};

// Begins a non-blocking communicator of one rank: its state tells of its creation.
ncclComm_t begin_alone(const rank& me) {
  const auto id = me.shared_id();
  auto config = config_with(0);
  ncclComm_t comm = nullptr;
  ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  REQUIRE(comm != nullptr);
  return comm;
}

bool stays_in_progress(ncclComm_t comm) {
  return settled(comm, hanging) == ncclInProgress;
}

SCENARIO_OF_RANKS(creation_beside_work) {
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  const device_stream stream;
  const char* lazy = std::getenv("EMULATED_CUDA_LAZY_LOADING");
  const bool is_lazy = lazy != nullptr && std::string(lazy) == "1";
  for (const bool is_first : {true, false}) {
    gate shut;
    shut.stop(stream);
    const auto comm = begin_alone(me);
    // Kernels are loaded once a process, memory is allocated for each communicator.
    if (is_first || !is_lazy) {
      CHECK(stays_in_progress(comm));
      shut.open();
    }
    CHECK(settled(comm) == ncclSuccess);
    shut.open();
    CHECK(stream.finished());
    CHECK(aborts_within(comm, limit));
  }
}

SCENARIO_OF_RANKS(free_beside_work) {
  const auto comm = form(me);
  const device_stream stream;
  gate shut;
  shut.stop(stream);
  {
    const beside freeing{[comm] { return ncclCommDestroy(comm); }};
    CHECK(freeing.waits());
    shut.open();
    CHECK(freeing.returns());
    CHECK(freeing.result() == ncclSuccess);
  }
}

// Rank 0 calls, and tells whether its call has returned before rank 1 calls too.
template <class Call>
void call_first(rank& me, bool is_connected, Call call) {
  if (me.index() == 1) {
    me.hear('c');
    CHECK(call() == ncclSuccess);
    return;
  }
  const beside calling{[&] {
    cudaSetDevice(0);
    return call();
  }};
  if (is_connected)
    CHECK(calling.returns());
  else
    CHECK(calling.waits());
  me.say('c');
  CHECK(calling.returns());
  CHECK(calling.result() == ncclSuccess);
}

SCENARIO_OF_RANKS(connect_collective) {
  const auto comm = form(me);
  {
    const device_stream stream;
    const device_array<int> data{ints(4, me.index() + 1)};
    const auto sum = [&] {
      return ncclAllReduce(data.data(), data.data(), 4, ncclInt, ncclSum, comm, stream);
    };
    call_first(me, false, sum);
    CHECK(stream.finished());
    call_first(me, true, sum);
    CHECK(stream.finished());
    CHECK(data.values() == ints(4, 6));
  }
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

SCENARIO_OF_RANKS(connect_messages) {
  const auto comm = form(me);
  {
    const device_stream stream;
    const device_array<int> data{ints(4, me.index())};
    const auto move = [&] {
      return me.index() == 0 ? ncclSend(data.data(), 4, ncclInt, 1, comm, stream)
                             : ncclRecv(data.data(), 4, ncclInt, 0, comm, stream);
    };
    call_first(me, false, move);
    call_first(me, true, move);
    CHECK(stream.finished());
    CHECK(data.values() == ints(4, 0));
  }
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

// Each sends to the next before it receives: in a group the connections do not wait for
// each other.
SCENARIO_OF_RANKS(connect_ring) {
  const auto comm = form(me);
  {
    const device_stream stream;
    const device_array<int> from{ints(4, me.index())};
    const device_array<int> to{ints(4, -1)};
    const int next = (me.index() + 1) % me.count();
    const int previous = (me.index() + me.count() - 1) % me.count();
    REQUIRE(ncclGroupStart() == ncclSuccess);
    CHECK(ncclSend(from.data(), 4, ncclInt, next, comm, stream) == ncclSuccess);
    CHECK(ncclRecv(to.data(), 4, ncclInt, previous, comm, stream) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(stream.finished());
    CHECK(to.values() == ints(4, previous));
  }
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

SCENARIO_OF_RANKS(revoke_connecting) {
  const auto comm = form(me);
  if (me.index() == 0) {
    const device_stream stream;
    const device_array<int> data{ints(4, 1)};
    const beside calling{[&] {
      cudaSetDevice(0);
      return ncclAllReduce(data.data(), data.data(), 4, ncclInt, ncclSum, comm, stream);
    }};
    CHECK(calling.waits());
    CHECK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT) == ncclSuccess);
    CHECK(calling.returns());
    CHECK(calling.result() != ncclSuccess);
  }
  me.say('e');
  me.hear('e');
  CHECK(aborts_within(comm, limit));
}

// The first thread is inside a split, which its peer never joins.
SCENARIO_OF_RANKS(abort_of_a_call) {
  const auto comm = form(me);
  if (me.index() == 1) return me.hear('k');
  std::thread([comm] {
    ncclComm_t child = nullptr;
    ncclCommSplit(comm, 0, 0, &child, nullptr);
  }).detach();
  auto* const is_inside = find<int(ncclComm_t)>("ncclEmulatedIsInside");
  REQUIRE(bool{is_inside != nullptr});
  REQUIRE(within(limit, [&] { return is_inside(comm) != 0; }));
  ncclCommAbort(comm);
}

// A thread ends a group with a split in it.
SCENARIO_OF_RANKS(abort_of_a_group) {
  const auto comm = form(me);
  if (me.index() == 1) return me.hear('k');
  static std::atomic<bool> is_at_end{false};
  std::thread([comm] {
    ncclComm_t child = nullptr;
    ncclGroupStart();
    ncclCommSplit(comm, 0, 0, &child, nullptr);
    is_at_end = true;
    ncclGroupEnd();
  }).detach();
  auto* const is_inside = find<int(ncclComm_t)>("ncclEmulatedIsInside");
  REQUIRE(bool{is_inside != nullptr});
  REQUIRE(within(limit, [&] { return is_at_end && is_inside(comm) != 0; }));
  ncclCommAbort(comm);
}

// A kernel that tells which process's slices it runs in.
struct observer {
  static constexpr int enough = 5;
  std::atomic<bool> is_running{false};
  std::atomic<bool> may_look{false};
  std::atomic<bool> may_end{false};
  std::atomic<int> parities{0};  // a bit for even slices, a bit for odd ones
  std::atomic<int> looks{0};

  static long slice() {
    using std::chrono::steady_clock;
    const auto now = steady_clock::now().time_since_epoch();
    return static_cast<long>(now / std::chrono::milliseconds{5});
  }
  static void run(void* self) { static_cast<observer*>(self)->look(); }
  void look() {
    auto* const await = find<void(int)>("cudaEmulatedAwaitSlice");
    is_running = true;
    static_cast<void>(within(limit, [&] { return may_look.load(); }));
    // A slice gets its process at its beginning: those in which the other came do not
    // count.
    const long came = slice();
    static_cast<void>(within(limit, [&] { return slice() > came + 1; }));
    // One that returns in the slice in which it was called was called in its own.
    static_cast<void>(within(limit, [&] {
      const long before = slice();
      await(0);
      if (slice() == before) {
        parities |= 1 << (before % 2);
        ++looks;
      }
      return looks == enough;
    }));
    static_cast<void>(within(limit, [&] { return may_end.load(); }));
  }
};

SCENARIO_OF_RANKS(slices) {
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  const device_stream stream;
  observer kernel;
  auto* const enqueue = find<decltype(cudaEmulatedEnqueue)>("cudaEmulatedEnqueue");
  REQUIRE(enqueue(stream, &observer::run, &kernel, nullptr) == cudaSuccess);
  CHECK(within(limit, [&] { return kernel.is_running.load(); }));
  me.say('r');
  me.hear('l');
  kernel.may_look = true;
  CHECK(within(limit, [&] { return kernel.looks == observer::enough; }));
  me.say(static_cast<char>('0' + kernel.parities));
  me.hear('e');
  kernel.may_end = true;
  CHECK(stream.finished());
}

SCENARIO_OF_RANKS(sum_in_slices) {
  const auto comm = form(me);
  CHECK(sum_over(comm, me.index() + 1) == 6);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

ncclComm_t form_with(const rank& me, int ctas, int cluster) {
  const auto id = me.shared_id();
  auto config = config_with(1);
  config.minCTAs = 1;
  config.maxCTAs = ctas;
  config.cgaClusterSize = cluster;
  ncclComm_t comm = nullptr;
  REQUIRE(ncclCommInitRankConfig(&comm, me.count(), id, me.index(), &config) ==
          ncclSuccess);
  return comm;
}

// Of 32 multiprocessors, which are two GPCs, 26 are taken: 3 are left of each.
SCENARIO_OF_RANKS(clusters) {
  REQUIRE(cudaSetDevice(me.index()) == cudaSuccess);
  const auto large = form_with(me, 26, 0);
  const auto whole = form_with(me, 4, 4);
  const auto apart = form_with(me, 4, 0);
  const device_stream held;
  // They run side by side.
  const device_array<int> of[]{device_array<int>{ints(4, 1)},
                               device_array<int>{ints(4, 1)},
                               device_array<int>{ints(4, 1)}};
  const auto sum = [&](ncclComm_t comm, const device_stream& on) {
    auto* const data = of[comm == large ? 0 : comm == whole ? 1 : 2].data();
    return ncclAllReduce(data, data, 4, ncclInt, ncclSum, comm, on);
  };
  const device_stream of_whole;
  const device_stream of_apart;
  if (me.index() == 0) {
    CHECK(sum(large, held) == ncclSuccess);
    auto* const most = find<int(int)>("ncclEmulatedMostOccupied");
    CHECK(within(limit, [&] { return most(0) == 26; }));
    me.say('l');
  } else {
    me.hear('l');
  }
  CHECK(sum(apart, of_apart) == ncclSuccess);
  CHECK(of_apart.finished());
  CHECK(sum(whole, of_whole) == ncclSuccess);
  CHECK(of_whole.hangs());
  if (me.index() == 1) {
    me.hear('g');
    CHECK(sum(large, held) == ncclSuccess);
  } else {
    me.say('g');
  }
  CHECK(of_whole.finished());
  CHECK(held.finished());
  for (const auto comm : {large, whole, apart}) ncclCommDestroy(comm);
}

SCENARIO_OF_RANKS(powers_of_two) {
  REQUIRE(cudaSetDevice(me.index()) == cudaSuccess);
  const auto comm = form_with(me, 3, 0);
  {
    auto* const most = find<int(int)>("ncclEmulatedMostOccupied");
    CHECK(sum_over(comm, 1) == 2);
    CHECK(most(me.index()) == 3);
    const device_stream stream;
    const device_array<int> data{ints(4, me.index())};
    CHECK((me.index() == 0
               ? ncclSend(data.data(), 4, ncclInt, 1, comm, stream)
               : ncclRecv(data.data(), 4, ncclInt, 0, comm, stream)) == ncclSuccess);
    CHECK(stream.finished());
    CHECK(most(me.index()) == 4);
  }
  ncclCommDestroy(comm);
}

void run(const scenario& plot, int count, std::vector<std::string> environment) {
  crew ranks{plot, count, std::move(environment)};
  ranks.share_id();
  CHECK(ranks.all_ended_well());
}

// Rank 0 says when rank 1 may call, as often as they call.
void run_calls(const scenario& plot, int calls) {
  crew ranks{plot, 2, {"EMULATED_NCCL_CONNECT=meets", "NCCL_RUNTIME_CONNECT=1"}};
  ranks.share_id();
  for (int call = 0; call < calls; ++call) {
    CHECK(ranks.said(0, 'c'));
    ranks.tell(1, 'c');
  }
  CHECK(ranks.all_ended_well());
}

}  // namespace

TEST_SUITE_BEGIN("nccl strict");

// NCCL 2.28.9 src/init.cc, devCommSetup: allocates, which CUDA may synchronise for.
TEST_CASE("a communicator is made after the work of its device" * unseen) {
  if (!only_emulated()) return;
  crew ranks{creation_beside_work,
             1,
             {"EMULATED_CUDA_IMPLICIT_SYNC=1", "EMULATED_CUDA_LAZY_LOADING=0"}};
  CHECK(ranks.all_ended_well());
}

// src/enqueue.cc, ncclInitKernelsForDevice: asks for all kernels' attributes.
TEST_CASE("the first communicator of a process loads its kernels after the work" *
          unseen) {
  if (!only_emulated()) return;
  crew ranks{creation_beside_work,
             1,
             {"EMULATED_CUDA_LAZY_LOADING=1", "EMULATED_CUDA_IMPLICIT_SYNC=0",
              "CUDA_MODULE_LOADING=LAZY"}};
  CHECK(ranks.all_ended_well());
}

// NVIDIA/nccl issues 829 and 1013: it frees, and cudaFree waits.
TEST_CASE("a communicator is freed after the work of its device" * unseen) {
  if (!only_emulated()) return;
  run(free_beside_work, 1, {"EMULATED_CUDA_IMPLICIT_SYNC=1"});
}

// src/transport.cc, ncclTransportP2pSetup, called by ncclCollPreconnect and
// ncclP2pPreconnect of src/group.cc.
TEST_CASE("a first collective returns when all ranks have called it" * unseen) {
  if (!only_emulated()) return;
  run_calls(connect_collective, 2);
}

TEST_CASE("a first message returns when its peer has called too" * unseen) {
  if (!only_emulated()) return;
  run_calls(connect_messages, 2);
}

TEST_CASE("the first messages of a group connect side by side" * unseen) {
  run(connect_ring, 3, {"EMULATED_NCCL_CONNECT=meets", "NCCL_RUNTIME_CONNECT=1"});
}

// src/init.cc, ncclCommRevoke: the bootstrap's sockets look at the flag that it raises.
TEST_CASE("a revocation gets a call out that connects" * unseen) {
  if (!only_emulated()) return;
  crew ranks{
      revoke_connecting, 2, {"EMULATED_NCCL_CONNECT=meets", "NCCL_RUNTIME_CONNECT=1"}};
  ranks.share_id();
  CHECK(ranks.said(0, 'e'));
  CHECK(ranks.said(1, 'e'));
  ranks.tell_all('e');
  CHECK(ranks.all_ended_well());
}

// NCCL's documents, "ncclCommAbort" and "Thread Safety": what it frees the other uses.
TEST_CASE("an abort while another thread is inside a call ends the process" * unseen) {
  if (!only_emulated()) return;
  for (const auto* plot : {&abort_of_a_call, &abort_of_a_group}) {
    CAPTURE(plot->name());
    crew ranks{*plot, 2};
    ranks.share_id();
    const std::string inside =
        plot == &abort_of_a_call ? "ncclCommSplit" : "ncclGroupEnd";
    CHECK(ranks.aborted_saying(0, "the other is inside " + inside));
  }
}

// "Multi-Process Service" of NVIDIA's documents: without it contexts are time-sliced.
TEST_CASE("processes that share a device run in turns" * unseen) {
  if (!only_emulated()) return;
  crew ranks{slices, 2, {"EMULATED_CUDA_DEVICES=1", "EMULATED_CUDA_SLICES=5"}};
  CHECK(ranks.said(0, 'r'));
  CHECK(ranks.said(1, 'r'));
  ranks.tell_all('l');
  const bool is_even = ranks.said(0, '1');
  CHECK(ranks.said(1, is_even ? '2' : '1'));
  ranks.tell_all('e');
  CHECK(ranks.all_ended_well());
}

TEST_CASE("ranks that share a device in turns add up" * unseen) {
  if (!only_emulated()) return;
  run(sum_in_slices, 3,
      {"EMULATED_CUDA_DEVICES=1", "EMULATED_CUDA_SLICES=2", "EMULATED_NCCL_VERSION=23003",
       "NCCL_MULTI_RANK_GPU_ENABLE=1"});
}

// src/enqueue.cc, "Grid dimension must be divisible by clusterSize".
TEST_CASE("a cluster waits for room on one GPC" * unseen) {
  if (!only_emulated()) return;
  crew ranks{clusters, 2, {"EMULATED_CUDA_SMS=32", "EMULATED_CUDA_DEVICES=2"}};
  for (int communicator = 0; communicator < 3; ++communicator) ranks.share_id();
  CHECK(ranks.said(0, 'l'));
  ranks.tell(1, 'l');
  CHECK(ranks.said(0, 'g'));
  ranks.tell(1, 'g');
  CHECK(ranks.all_ended_well());
}

// src/graph/paths.cc, ncclTopoComputeP2pChannels.
TEST_CASE("messages occupy the next power of two of multiprocessors" * unseen) {
  if (!only_emulated()) return;
  run(powers_of_two, 2, {"EMULATED_CUDA_DEVICES=2"});
}

TEST_SUITE_END();
