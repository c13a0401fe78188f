// Own orders: what rank 0 has told its peers, and hears itself when they surely will.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "host/host_backend.hpp"
#include "nccl/launch_leader.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// To tell is to queue: the bytes leave when the reactor gets to it. A kernel that is
/// launched here before that may hold up the reactor's next call of CUDA: a cudaFree of
/// the user's, or a call behind one that holds the driver's lock. Then no peer is ever
/// told to launch its own kernel, and none of them ends. So this member launches
/// nothing of which its peers can learn only from this thread. Thread: the world's
/// reactor.
class own_orders {
 public:
  explicit own_orders(const host_backend& way) : way_(way) {}

  /// Notes that a message to a peer is about to be sent; returns its number.
  [[nodiscard]] std::uint64_t say(rank_t peer) {
    said_.push_back({last_said_ + 1, peer, {}});
    return ++last_said_;
  }
  /// Notes that its send has ended: it is the last that is queued on its connection.
  void note_sent(std::uint64_t number) noexcept;

  void add(order_message text) { waiting_.push_back({std::move(text), last_said_}); }
  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  /// Returns whether the peers launch, or connect, by one of them.
  [[nodiscard]] bool have_launch() const noexcept;
  /// Returns the oldest, once all that was said before it gets to the peers.
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
  /// When there are this many, each is asked about: a member that reads nothing for
  /// long keeps only its own.
  std::size_t next_look_ = first_look;
  std::deque<own_order> waiting_;
};

}  // namespace manyworlds::inline v0::detail::nccl
