// Order mail: carries order messages between rank 0 and the other members.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "host/host_backend.hpp"
#include "nccl/membership.hpp"
#include "nccl/order_message.hpp"
#include "nccl/order_post.hpp"
#include "nccl/own_orders.hpp"

namespace manyworlds::inline v0::detail::nccl {

/// Messages travel on a lane of the host backend. Those of one member are read in the
/// order in which it said them, also those that rank 0 says to itself.
///
/// Thread: the world's reactor.
class order_mail {
 public:
  class reader {
   public:
    /// Throws wire_error if the member may not say this, or not now.
    virtual void read(rank_t from, const order_message& message) = 0;
    /// Called when all messages that have come are read.
    virtual void all_read() noexcept = 0;
    /// `hear_own` is to be called in each turn until nothing waits for it.
    virtual void must_poll() noexcept = 0;

   protected:
    ~reader() = default;
  };

  order_mail(membership& of, host_backend& way, reader& read_by)
      : member_(of), way_(way), reader_(read_by), own_(way) {}
  order_mail(const order_mail&) = delete;
  order_mail& operator=(const order_mail&) = delete;

  /// Reads messages from here on.
  void open();

  /// Sends `message`; drops it if `to` has left. Precondition: `to` is not this member.
  void say(rank_t to, const order_message& message);
  void say_to_others(const order_message& message);
  /// Sends `message` to rank 0, which reads its own at once.
  void say_to_leader(const order_message& message);
  /// Sends rank 0's decisions, also to itself: those it reads when the peers are sure
  /// to get what it said to them before.
  void decide(rank_t whom, const order_message& message);

  /// Reads what rank 0 has decided for itself. Returns true if there was anything.
  bool hear_own();
  [[nodiscard]] bool has_own() const noexcept { return !own_.empty(); }
  /// Returns whether the peers launch, or connect, by something that this member has
  /// not read.
  [[nodiscard]] bool has_own_launch() const noexcept { return own_.have_launch(); }

 private:
  friend class order_post;

  struct received {
    rank_t from;
    bytes text;
  };

  void sent(order_post& post) noexcept;
  void arrived(order_post& post) noexcept;
  void refused(const order_post& post) noexcept;
  void drain() noexcept;

  membership& member_;
  host_backend& way_;
  reader& reader_;
  std::vector<std::unique_ptr<order_post>> posts_;
  order_post* idle_ = nullptr;
  std::vector<order_post*> unarmed_;
  std::deque<received> unread_;
  bool is_draining_ = false;
  own_orders own_;
  bool hears_own_ = false;
};

}  // namespace manyworlds::inline v0::detail::nccl
