// Device control: what a backend with a communicator offers beyond operations.
#pragma once

#include <cstddef>

#include "manyworlds/detail/world_device.hpp"
#include "manyworlds/memory/device_view.hpp"

namespace manyworlds::inline v0::detail {

/// Describes a world's share of its GPU and the progress of its operations there, for
/// dumps.
struct device_status {
  int device = -1;
  int nccl_version = 0;  ///< as ncclGetVersion gives it: 22809 is 2.28.9
  bool is_ready = false;
  bool is_told_by_words = false;  ///< by words that the stream writes, else by events

  int occupied = 0;         ///< multiprocessors of this world
  int given = 0;            ///< multiprocessors of all worlds of the runtime
  int multiprocessors = 0;  ///< multiprocessors of the device

  // Operations. Those that wait to be matched are counted in their lanes.
  std::size_t being_checked = 0;  ///< their views are being checked
  std::size_t queued = 0;         ///< matched, and not handed over yet
  std::size_t handed_over = 0;    ///< handed to the launching thread
  std::size_t launched = 0;       ///< launched, of those handed over
  std::size_t awaited = 0;        ///< tickets that are awaited

  /// True if another world of this process is on the GPU of a member. Then the launches
  /// of this world take places in the orders of its members' GPUs.
  bool has_places = false;
  std::size_t places = 0;  ///< held now: promised or decided, and not launched

  // The device, in this runtime.
  int stuck = 0;  ///< communicators that could not be freed
  int roots = 0;  ///< creations that not all members came to: NCCL waits for them
};

/// What a backend with a communicator offers. Thread: the world's reactor.
class device_control {
 public:
  /// Returns the stream on which the world's operations run; none before the device is
  /// ready.
  [[nodiscard]] virtual device_stream stream() const noexcept = 0;
  [[nodiscard]] virtual device_status status() const = 0;
  virtual void hold(graph_entry& graph) noexcept = 0;
  virtual void let_go(graph_entry& graph) noexcept = 0;

 protected:
  ~device_control() = default;
};

}  // namespace manyworlds::inline v0::detail
