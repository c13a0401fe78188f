// Graph hold: a captured graph that a world may have to drop.
#pragma once

#include <memory>
#include <utility>

#include "manyworlds/detail/access.hpp"
#include "manyworlds/detail/world_device.hpp"
#include "manyworlds/world/world.hpp"

namespace manyworlds::inline v0 {

/// Registers a CUDA graph that was captured with a world's communicator (`native`).
/// NCCL frees a communicator only when such graphs are gone. So `drop()` is called
/// once, when the world breaks or is left; it destroys the graph and its executables.
/// It is not called after the hold is destroyed. In a world without a device a hold
/// does nothing. Thread: the world's reactor, also for `drop()`.
///
///     auto capture = [&](ncclComm* on, CUstream_st* from) { graph.capture(on, from); };
///     co_await w.native(capture);
///     mw::graph_hold held(w, [&] { graph.destroy(); });
///     graph.launch();
template <class Drop>
class graph_hold final : private detail::graph_entry {
 public:
  /// Registers the graph. Errors: world_error (`invalid_argument`) for a handle without a
  /// world.
  graph_hold(const world& w, Drop destroys)
      : detail::graph_entry([](detail::graph_entry& self) noexcept {
          static_cast<graph_hold&>(self).drop_();
        }),
        core_(detail::access::core_ptr(w)),
        drop_(std::move(destroys)) {
    detail::list_graph(detail::access::core(w), *this);
  }
  ~graph_hold() {
    if (is_listed) detail::unlist_graph(*core_, *this);
  }

 private:
  std::shared_ptr<detail::world_core> core_;
  Drop drop_;
};

}  // namespace manyworlds::inline v0
