#include "device.hpp"

#include <driver_types.h>

#include <map>
#include <utility>

#include "machine.hpp"
#include "settings.hpp"

namespace emulated {
namespace {

// The streams that cudaStreamPerThread means, by device.
struct streams_of_thread {
  std::map<int, stream_ptr> by_device;

  ~streams_of_thread() {
    // In a forked child the lock may be held by a thread that is not there.
    if (machine::in_forked_child()) return;
    for (auto& [ordinal, stream] : by_device) stream->end();
  }
};

thread_local streams_of_thread of_thread;

void make_wait(stream& waiting, stream& waited_for) {
  if (!waited_for.busy()) return;
  auto mark = std::make_shared<moment>();
  waited_for.push(mark);
  waiting.push(std::make_shared<node>([mark] { mark->wait(); }));
}

}  // namespace

device::device(int ordinal_)
    : ordinal(ordinal_),
      legacy(std::make_shared<stream>(ordinal_, cudaStreamDefault, 0)) {
  for (int i = 0; i < chosen().connections; ++i)
    connections_.push_back(std::make_shared<connection>());
}

std::shared_ptr<connection> device::next_connection() {
  if (connections_.empty()) return nullptr;
  return connections_[connected_++ % connections_.size()];
}

stream_ptr device::make_stream(unsigned flags, int priority) {
  auto made = std::make_shared<stream>(ordinal, flags, priority);
  std::lock_guard hold(mutex_);
  std::erase_if(streams_, [](const auto& each) { return each.expired(); });
  streams_.push_back(made);
  return made;
}

stream_ptr device::of_this_thread() {
  stream_ptr& mine = of_thread.by_device[ordinal];
  if (!mine) mine = make_stream(cudaStreamDefault, 0);
  return mine;
}

bool device::has_loaded(const void* kernel) {
  std::lock_guard hold(mutex_);
  return loaded_.count(kernel) != 0;
}

void device::note_loaded(const void* kernel) {
  std::lock_guard hold(mutex_);
  loaded_.insert(kernel);
}

std::vector<stream_ptr> device::streams() {
  std::vector<stream_ptr> living;
  std::lock_guard hold(mutex_);
  for (const auto& each : streams_)
    if (auto stream = each.lock()) living.push_back(std::move(stream));
  return living;
}

void device::wait_for_legacy(stream& to) {
  if (&to != legacy.get()) return make_wait(to, *legacy);
  for (const stream_ptr& each : streams())
    if (each->blocking()) make_wait(*legacy, *each);
}

void device::enqueue(stream& to, node_ptr work) {
  if (!to.blocking()) return to.push(std::move(work));
  std::lock_guard hold(order_);
  wait_for_legacy(to);
  to.push(std::move(work));
}

void device::enqueue(stream& to, moment_ptr mark) {
  if (!to.blocking()) return to.push(std::move(mark));
  std::lock_guard hold(order_);
  wait_for_legacy(to);
  to.push(std::move(mark));
}

std::vector<moment_ptr> device::mark_all() {
  std::vector<moment_ptr> marks;
  auto all = streams();
  all.push_back(legacy);
  for (const stream_ptr& each : all) {
    if (!each->busy()) continue;
    marks.push_back(std::make_shared<moment>());
    each->push(marks.back());
  }
  return marks;
}

void device::drop_all() {
  for (const stream_ptr& each : streams()) each->drop_queued();
  legacy->drop_queued();
}

}  // namespace emulated
