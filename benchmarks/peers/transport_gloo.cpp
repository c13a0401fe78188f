// Two processes, the second forked by the first, which meet in a folder. Gloo sends and
// receives by buffers that are made for their memory; these are kept.
#include <gloo/barrier.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>

extern "C" {
#include "far_rank.h"
#include "transport.h"
}

namespace {

using buffer = gloo::transport::UnboundBuffer;

std::shared_ptr<gloo::rendezvous::Context> context;
std::filesystem::path meeting_place;
std::map<std::pair<const void*, size_t>, std::unique_ptr<buffer>> buffers;
struct under_way {
  buffer* of = nullptr;
  bool sends = false;
};
under_way requests[in_flight];

// One number for all: between two ranks messages of one number are in order.
constexpr uint64_t number = 1;

buffer& buffer_of(const void* memory, size_t size) {
  auto& found = buffers[{memory, size}];
  if (!found) found = context->createUnboundBuffer(const_cast<void*>(memory), size);
  return *found;
}

}  // namespace

void transport_open(int*, char***, int* rank) {
  char place[] = "/tmp/gloo.XXXXXX";
  if (::mkdtemp(place) == nullptr) std::perror("mkdtemp"), std::exit(1);
  meeting_place = place;
  start_far_rank(rank);
  gloo::transport::tcp::attr here;
  here.hostname = address_of_rank(*rank);
  gloo::rendezvous::FileStore store(meeting_place);
  context = std::make_shared<gloo::rendezvous::Context>(*rank, 2);
  auto device = gloo::transport::tcp::CreateDevice(here);
  context->connectFullMesh(store, device);
}

void transport_close() {
  transport_barrier();
  std::fflush(nullptr);
  if (context->rank == 0) std::filesystem::remove_all(meeting_place);
  // The rank that closes its connections first is an error to the other.
  ::_exit(0);
}

void transport_send(const char* memory, size_t size, int peer) {
  transport_start_send(0, memory, size, peer);
  transport_finish(0);
}

void transport_receive(char* memory, size_t size, int peer) {
  transport_start_receive(0, memory, size, peer);
  transport_finish(0);
}

void transport_start_send(int slot, const char* memory, size_t size, int peer) {
  buffer& of = buffer_of(memory, size);
  of.send(peer, number);
  requests[slot] = {&of, true};
}

void transport_start_receive(int slot, char* memory, size_t size, int peer) {
  buffer& of = buffer_of(memory, size);
  of.recv(peer, number);
  requests[slot] = {&of, false};
}

void transport_finish(int slot) {
  const auto [of, sends] = std::exchange(requests[slot], {});
  if (of) sends ? of->waitSend() : of->waitRecv();
}

void transport_barrier() {
  gloo::BarrierOptions o(context);
  gloo::barrier(o);
}

void transport_gather_greatest(const double* mine, double* greatest, int count) {
  // Of two ranks only the first measures.
  std::copy(mine, mine + count, greatest);
}
