// A device: its streams, and the order that the legacy stream imposes on them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "slices.hpp"
#include "stream.hpp"

namespace emulated {

class device {
 public:
  explicit device(int ordinal);

  const int ordinal;
  const stream_ptr legacy;
  // Hundreds of MiB of a real one's memory.
  std::atomic<bool> has_context{false};
  // Those of its processes.
  slices turns{ordinal};

  bool has_loaded(const void* kernel);
  void note_loaded(const void* kernel);

  stream_ptr make_stream(unsigned flags, int priority);
  // In turn, as streams get their first work; null where each has its own.
  std::shared_ptr<connection> next_connection();
  // cudaStreamPerThread of the calling thread.
  stream_ptr of_this_thread();

  void enqueue(stream& to, node_ptr work);
  void enqueue(stream& to, moment_ptr mark);

  // Marks of all work that is on the device now.
  std::vector<moment_ptr> mark_all();

  void drop_all();

 private:
  // Makes `to` wait for the legacy stream's work, or, being the legacy stream, for that
  // of all blocking streams. The caller holds `order_`.
  void wait_for_legacy(stream& to);
  std::vector<stream_ptr> streams();

  std::vector<std::shared_ptr<connection>> connections_;
  std::atomic<std::size_t> connected_{0};
  std::mutex order_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<stream>> streams_;
  std::set<const void*> loaded_;
};

}  // namespace emulated
