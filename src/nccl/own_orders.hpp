// Own orders: what rank 0 has told its peers, and hears itself when they surely will.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "launch_leader.hpp"
#include "manyworlds/host/host_backend.hpp"

namespace manyworlds::inline v0::nccl {

/// To tell is to queue: the bytes leave when the reactor gets to it. Launched here before
/// that, a kernel may be what the reactor's next call of CUDA waits for, in a cudaFree of
/// the user's or behind one that holds the driver's lock; then no peer is ever told to
/// launch its own, and none of it ends. So this member launches nothing of which its
/// peers can learn only from this thread. On the world's reactor.
class own_orders {
 public:
  own_orders(const host_backend& way, rank_t size) noexcept : way_(way), size_(size) {}

  /// A message to a peer is about to be sent; gives its number.
  [[nodiscard]] std::uint64_t say() {
    unsent_.push_back(++last_said_);
    return last_said_;
  }
  /// Its send has ended: it is queued on its connection.
  void note_sent(std::uint64_t number) noexcept;

  void add(order_message text) { waiting_.push_back({std::move(text), last_said_, {}}); }
  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  /// The oldest, once all that was said before it gets to the peers.
  [[nodiscard]] std::optional<order_message> take();

 private:
  struct behind {
    rank_t peer;
    std::uint64_t queued;
  };
  struct own_order {
    order_message text;
    std::uint64_t said;  ///< the last message before it
    std::optional<std::vector<behind>> leaving;
  };

  const host_backend& way_;
  const rank_t size_;
  std::uint64_t last_said_ = 0;
  /// In their order; those to one peer are sent in it.
  std::vector<std::uint64_t> unsent_;
  std::deque<own_order> waiting_;
};

}  // namespace manyworlds::inline v0::nccl
