// Held graphs: captured graphs that hold a world's communicator.
#pragma once

#include "backend/device_control.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Keeps a list through the entries, which their users own.
///
/// Thread: the world's reactor.
class held_graphs {
 public:
  void add(graph_entry& graph) noexcept {
    graph.previous = nullptr;
    graph.next = first_;
    if (first_) first_->previous = &graph;
    first_ = &graph;
    graph.is_listed = true;
  }
  /// Does nothing if it is not in the list.
  void remove(graph_entry& graph) noexcept {
    if (!graph.is_listed) return;
    (graph.previous ? graph.previous->next : first_) = graph.next;
    if (graph.next) graph.next->previous = graph.previous;
    graph.is_listed = false;
  }
  void drop_all() noexcept {
    while (graph_entry* const graph = first_) {
      remove(*graph);
      graph->drop(*graph);
    }
  }

 private:
  graph_entry* first_ = nullptr;
};

}  // namespace manyworlds::inline v0::detail::nccl
