// Own orders: what rank 0 has told its peers, and hears itself when they surely will.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

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
  explicit own_orders(const host_backend& way) : way_(way) {}

  /// A message to a peer is about to be sent; gives its number.
  [[nodiscard]] std::uint64_t say(rank_t peer) {
    said_.push_back({last_said_ + 1, peer, {}});
    return ++last_said_;
  }
  /// Its send has ended: it is the last that is queued on its connection.
  void note_sent(std::uint64_t number) noexcept;

  void add(order_message text) { waiting_.push_back({std::move(text), last_said_}); }
  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  /// Whether the peers launch, or connect, by one of them.
  [[nodiscard]] bool have_launch() const noexcept;
  /// The oldest, once all that was said before it gets to the peers.
  [[nodiscard]] std::optional<order_message> take();

 private:
  struct message {
    std::uint64_t number;
    rank_t peer;
    std::optional<std::uint64_t> queued;  ///< up to its end, see host_backend::queued
  };
  struct own_order {
    order_message text;
    std::uint64_t said;  ///< the last message before it
  };

  void forget_gone() noexcept;
  [[nodiscard]] bool has_gone(const message& m) const noexcept;

  static constexpr std::size_t first_look = 1024;

  const host_backend& way_;
  std::uint64_t last_said_ = 0;
  /// What may not have left yet, in its order.
  std::deque<message> said_;
  /// With so many of them each is asked about: a member that reads nothing for long keeps
  /// only its own.
  std::size_t next_look_ = first_look;
  std::deque<own_order> waiting_;
};

}  // namespace manyworlds::inline v0::nccl
