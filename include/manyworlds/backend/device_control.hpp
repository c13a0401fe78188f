// Device control: what a backend with a communicator offers beyond operations.
#pragma once

#include <cstddef>

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

/// A world's share of its GPU and how far its operations there are, for dumps.
struct device_status {
  int device = -1;
  /// As ncclGetVersion: 22809 is 2.28.9.
  int nccl_version = 0;
  bool is_ready = false;
  /// By words that the stream writes, or else by events.
  bool is_told_by_words = false;

  // Multiprocessors: this world's, those given to worlds of the runtime, all.
  int occupied = 0;
  int given = 0;
  int multiprocessors = 0;

  // Operations. Those that wait to be matched stand in their lanes.
  std::size_t being_checked = 0;  ///< their views
  std::size_t queued = 0;         ///< matched, and not handed over yet
  std::size_t handed_over = 0;    ///< to who launches
  std::size_t launched = 0;       ///< of these
  std::size_t awaited = 0;        ///< tickets

  /// Another world of this process is on the GPU of a member, so this world's launches
  /// take places in the orders of its members' GPUs.
  bool has_places = false;
  std::size_t places = 0;  ///< held now: promised or decided, and not launched

  // Of the device, in this runtime.
  int stuck = 0;  ///< communicators that could not be freed
  int roots = 0;  ///< creations that not all members came to: NCCL waits for them
};

/// On the world's reactor.
class device_control {
 public:
  /// The stream on which the world's operations run; none before the device is ready.
  [[nodiscard]] virtual device_stream stream() const noexcept = 0;
  [[nodiscard]] virtual device_status status() const = 0;
  virtual void hold(graph_entry& graph) noexcept = 0;
  virtual void let_go(graph_entry& graph) noexcept = 0;

 protected:
  ~device_control() = default;
};

}  // namespace manyworlds::inline v0
