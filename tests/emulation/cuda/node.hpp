// A piece of work in stream order: run once from a queue, or again and again from a
// graph.
#pragma once

#include <functional>
#include <memory>
#include <utility>

namespace emulated {

class node {
 public:
  // `release` is called when the node will not run again.
  explicit node(std::function<void()> run, std::function<void()> release = {},
                const void* key = nullptr)
      : run_(std::move(run)), release_(std::move(release)), key_(key) {}
  node(const node&) = delete;
  node& operator=(const node&) = delete;
  ~node();

  void run() const;

  // It runs on the device, and so in the slices of its process.
  void become_kernel(int device) { kernel_on_ = device; }

  // It is part of a graph from now on: see cudaEmulatedGraphsHolding.
  void enter_graph();

  // What could not be enqueued stays its caller's.
  void disown() { release_ = nullptr; }

 private:
  std::function<void()> run_;
  std::function<void()> release_;
  const void* key_;
  bool in_graph_ = false;
  int kernel_on_ = -1;
};

using node_ptr = std::shared_ptr<node>;

}  // namespace emulated
