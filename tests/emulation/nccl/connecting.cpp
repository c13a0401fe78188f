#include "connecting.hpp"

#include "allocation.hpp"
#include "child.hpp"
#include "complaint.hpp"
#include "settings.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace nccl_emulation {

namespace {

struct connection {
  std::string name;
  /// All ranks of a collective, the sender and the receiver of messages.
  std::vector<int> ranks;
};

// The call and the size choose the algorithm: Tree, Ring or NVLS. Their limits are in
// src/graph/tuning.cc.
connection of_collective(const communicator& c, const task& t) {
  constexpr std::size_t tree_limit = std::size_t{64} * 1024;
  constexpr std::size_t ring_limit = std::size_t{1024} * 1024;
  const int algorithm = t.bytes() < tree_limit ? 0 : t.bytes() < ring_limit ? 1 : 2;
  return {"connect" + std::to_string(static_cast<int>(t.what)) + '/' +
              std::to_string(algorithm),
          all_ranks(c)};
}

connection of_message(const communicator& c, const task& t) {
  const bool sends = t.what == call::send;
  const int from = sends ? c.rank : t.root;
  const int to = sends ? t.root : c.rank;
  return {"connect" + std::to_string(from) + '>' + std::to_string(to), {from, to}};
}

// Collectives connect at their first use from 2.22 on (NCCL_RUNTIME_CONNECT; 2.28.9
// src/group.cc, ncclCollPreconnect), before that when the communicator is made. Messages
// always did (ncclP2pPreconnect).
std::vector<connection> missing_ones(const communicator& c, std::span<const task> tasks) {
  std::vector<connection> found;
  for (const auto& t : tasks) {
    const bool is_message = t.point_to_point();
    if (c.count == 1 || (is_message && t.root == c.rank)) continue;
    if (is_message ? !chosen().connecting_meets : !chosen().connects_at_use) continue;
    auto wanted = is_message ? of_message(c, t) : of_collective(c, t);
    const bool is_new =
        c.connected.count(wanted.name) == 0 &&
        std::none_of(found.begin(), found.end(),
                     [&](const connection& each) { return each.name == wanted.name; });
    if (is_new) found.push_back(std::move(wanted));
  }
  return found;
}

bool meet_others(const communicator& c, const connection& wanted, const char* stage) {
  const auto place = std::find(wanted.ranks.begin(), wanted.ranks.end(), c.rank);
  return meet(derive(c, wanted.name + stage),
              static_cast<int>(place - wanted.ranks.begin()),
              static_cast<int>(wanted.ranks.size()), c.card(), c.cut())
      .has_value();
}

// Side by side: the members may have been given them in different orders.
bool meet_all(const communicator& c, const std::vector<connection>& wanted,
              const char* stage) {
  std::atomic<bool> all{true};
  std::vector<std::thread> meetings;
  for (const auto& each : wanted)
    meetings.emplace_back([&c, &each, &all, stage] {
      if (!meet_others(c, each, stage)) all = false;
    });
  for (auto& meeting : meetings) meeting.join();
  return all;
}

// What it allocates, and the copy that tells the device of the peers, on a stream of its
// own (src/transport.cc, ncclTransportP2pSetup).
ncclResult_t use_device(communicator& c) {
  auto mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  auto result = allocate(c);
  cudaStream_t own = nullptr;
  auto error = cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
  void* told = nullptr;
  const int peers = c.count;
  if (error == cudaSuccess) error = cudaMallocAsync(&told, sizeof peers, own);
  if (error == cudaSuccess)
    error = cudaMemcpyAsync(told, &peers, sizeof peers, cudaMemcpyHostToDevice, own);
  if (told != nullptr) cudaFreeAsync(told, own);
  if (error == cudaSuccess) error = cudaStreamSynchronize(own);
  if (own != nullptr) cudaStreamDestroy(own);
  cudaThreadExchangeStreamCaptureMode(&mode);
  if (result == ncclSuccess && error != cudaSuccess)
    result = complain(ncclUnhandledCudaError, cudaGetErrorString(error));
  return result;
}

// No rank goes on before all are through: src/transport.cc, "We need to sync ranks here
// since some ranks might run too fast after connection setup".
ncclResult_t make(communicator& c, const std::vector<connection>& wanted) {
  const auto given_up = [] {
    return complain(ncclInternalError, "given up while it connected");
  };
  const auto cost = chosen().connect_ms * static_cast<int>(wanted.size());
  if (!chosen().connecting_meets)
    return sleep_for(cost, c.cut()) == outcome::interrupted ? given_up() : ncclSuccess;
  if (!meet_all(c, wanted, "/begin")) return given_up();
  if (const auto failure = use_device(c)) return failure;
  if (sleep_for(cost, c.cut()) == outcome::interrupted) return given_up();
  return meet_all(c, wanted, "/end") ? ncclSuccess : given_up();
}

}  // namespace

bool lacks_connections(const communicator& c, std::span<const task> tasks) {
  return !missing_ones(c, tasks).empty();
}

ncclResult_t connect(communicator& c, std::span<const task> tasks) {
  const auto wanted = missing_ones(c, tasks);
  if (wanted.empty()) return ncclSuccess;
  // The sockets of the bootstrap look at the flag, so that a revocation gets it out.
  c.looks_at_flag = true;
  const auto result = make(c, wanted);
  c.looks_at_flag = false;
  if (result == ncclSuccess)
    for (const auto& each : wanted) c.connected.insert(each.name);
  return result;
}

}  // namespace nccl_emulation
