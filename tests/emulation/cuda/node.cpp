#include "node.hpp"

#include "machine.hpp"

namespace emulated {

void node::run() const {
  if (kernel_on_ < 0) return run_();
  const slices::kernel while_it_runs(kernel_on_);
  run_();
}

node::~node() {
  // A thread that waits for the graphs to be gone may free what release still uses:
  // release first.
  if (release_) release_();
  if (in_graph_ && key_ != nullptr) machine::here().held.remove(key_);
}

void node::enter_graph() {
  if (!in_graph_ && key_ != nullptr) machine::here().held.add(key_);
  in_graph_ = true;
}

}  // namespace emulated
