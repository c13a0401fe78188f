// Gloo as torch.distributed uses it: its newer functions, where a collective has one, and
// tcp over loopback, which is all that it has between processes of a host.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "collectives.h"

namespace {

std::shared_ptr<gloo::rendezvous::Context> context;
std::filesystem::path meeting_place;
std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> reducer_scatterer;
std::vector<float> reduced_in_place;

void add(void* into, const void* a, const void* b, std::size_t count) {
  gloo::sum<float>(into, a, b, count);
}

bool is_root() { return context->rank == 0; }

}  // namespace

void peer_open(int*, char***, int* rank, int* members) {
  char place[] = "/tmp/gloo.XXXXXX";
  if (::mkdtemp(place) == nullptr) std::perror("mkdtemp"), std::exit(1);
  meeting_place = place;
  *rank = 0;
  const pid_t first = ::getpid();
  for (int other = 1; other < *members && *rank == 0; ++other) {
    if (::fork() != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != first) std::exit(1);
    *rank = other;
  }
  gloo::transport::tcp::attr loopback;
  loopback.iface = "lo";
  gloo::rendezvous::FileStore store(meeting_place);
  context = std::make_shared<gloo::rendezvous::Context>(*rank, *members);
  auto device = gloo::transport::tcp::CreateDevice(loopback);
  context->connectFullMesh(store, device);
}

void peer_close() {
  peer_barrier();
  reducer_scatterer.reset();
  if (is_root()) std::filesystem::remove_all(meeting_place);
  // Who closes its connections first is an error to the others.
  std::fflush(nullptr);
  ::_exit(0);
}

void peer_prepare(const collective* c) {
  if (c->kind != reduce_scatter) return;
  // It has none but the older form, which connects buffers beforehand and works in place.
  const auto* source = static_cast<const float*>(c->source);
  reducer_scatterer.reset();
  reduced_in_place.assign(source, source + c->whole);
  reducer_scatterer = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
      context, std::vector<float*>{reduced_in_place.data()}, static_cast<int>(c->whole),
      std::vector<int>(static_cast<std::size_t>(context->size),
                       static_cast<int>(c->part)));
}

void peer_run(const collective* c) {
  auto* source = static_cast<char*>(const_cast<void*>(c->source));
  auto* target = static_cast<char*>(c->target);
  auto* addends = reinterpret_cast<float*>(source);
  auto* sums = reinterpret_cast<float*>(target);
  switch (c->kind) {
    case broadcast: {
      gloo::BroadcastOptions o(context);
      o.setOutput(target, c->whole);
      o.setRoot(0);
      return gloo::broadcast(o);
    }
    case reduce: {
      gloo::ReduceOptions o(context);
      o.setInput(addends, c->whole);
      o.setOutput(sums, c->whole);
      o.setRoot(0);
      o.setReduceFunction(add);
      return gloo::reduce(o);
    }
    case all_reduce: {
      gloo::AllreduceOptions o(context);
      o.setInput(addends, c->whole);
      o.setOutput(sums, c->whole);
      o.setReduceFunction(add);
      return gloo::allreduce(o);
    }
    case gather: {
      gloo::GatherOptions o(context);
      o.setInput(source, c->part);
      if (is_root()) o.setOutput(target, c->whole);
      o.setRoot(0);
      return gloo::gather(o);
    }
    case all_gather: {
      gloo::AllgatherOptions o(context);
      o.setInput(source, c->part);
      o.setOutput(target, c->whole);
      return gloo::allgather(o);
    }
    case scatter: {
      gloo::ScatterOptions o(context);
      std::vector<char*> parts;
      for (char* at = source; at < source + c->whole; at += c->part) parts.push_back(at);
      if (is_root()) o.setInputs(parts, c->part);
      o.setOutput(target, c->part);
      o.setRoot(0);
      return gloo::scatter(o);
    }
    case reduce_scatter:
      reducer_scatterer->run();
      return void(std::copy_n(reduced_in_place.data(), c->part, sums));
    case all_to_all: {
      gloo::AlltoallOptions o(context);
      o.setInput(source, c->whole);
      o.setOutput(target, c->whole);
      return gloo::alltoall(o);
    }
    default:
      return peer_barrier();
  }
}

void peer_barrier() {
  gloo::BarrierOptions o(context);
  gloo::barrier(o);
}

void peer_all_gather(const double* mine, double* all, int count) {
  gloo::AllgatherOptions o(context);
  const auto part = static_cast<std::size_t>(count);
  o.setInput(const_cast<double*>(mine), part);
  o.setOutput(all, part * static_cast<std::size_t>(context->size));
  gloo::allgather(o);
}
