// Device control: what a backend with a communicator offers beyond operations.
#pragma once

#include "manyworlds/memory/device_view.hpp"

namespace manyworlds::inline v0 {

/// One captured graph that holds a world's communicator. NCCL waits with freeing a
/// communicator until such graphs are gone, so a world that breaks has them dropped.
class graph_entry {
 public:
  using drop_function = void (*)(graph_entry&) noexcept;
  explicit graph_entry(drop_function f) noexcept : drop(f) {}
  graph_entry(const graph_entry&) = delete;
  graph_entry& operator=(const graph_entry&) = delete;

  /// Destroys the graph; once, on the world's reactor.
  drop_function drop;
  graph_entry* next = nullptr;
  graph_entry* previous = nullptr;
  bool is_listed = false;

 protected:
  ~graph_entry() = default;
};

/// On the world's reactor.
class device_control {
 public:
  /// The stream on which the world's operations run; none before the device is ready.
  [[nodiscard]] virtual device_stream stream() const noexcept = 0;
  virtual void hold(graph_entry& graph) noexcept = 0;
  virtual void let_go(graph_entry& graph) noexcept = 0;

 protected:
  ~device_control() = default;
};

}  // namespace manyworlds::inline v0
