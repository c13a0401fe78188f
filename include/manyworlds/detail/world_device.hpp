// World device: what a world on a device offers beyond operations.
#pragma once

#include <memory>

#include "manyworlds/memory/device_view.hpp"

namespace manyworlds::inline v0::detail {

class world_core;

/// One captured graph that holds a world's communicator. NCCL frees a communicator only
/// when such graphs are gone, so a world that breaks drops them.
class graph_entry {
 public:
  using drop_function = void (*)(graph_entry&) noexcept;
  explicit graph_entry(drop_function f) noexcept : drop(f) {}
  graph_entry(const graph_entry&) = delete;
  graph_entry& operator=(const graph_entry&) = delete;

  /// Destroys the graph. Called once, on the world's reactor.
  drop_function drop;
  graph_entry* next = nullptr;
  graph_entry* previous = nullptr;
  bool is_listed = false;

 protected:
  ~graph_entry() = default;
};

/// Returns the stream on which the world's operations run; none before the device is
/// ready, and in a world without one. Thread: the world's reactor.
[[nodiscard]] device_stream stream_of(const world_core& w) noexcept;
/// Lists the graph with a world that is on a device; does nothing otherwise. Thread: the
/// world's reactor.
void list_graph(world_core& with, graph_entry& graph);
/// Takes it off the list if it is there.
void unlist_graph(world_core& with, graph_entry& graph) noexcept;

}  // namespace manyworlds::inline v0::detail
