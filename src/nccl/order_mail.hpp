// Order mail: carries order messages between rank 0 and the other members.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "host/host_backend.hpp"
#include "manyworlds/detail/operation.hpp"
#include "manyworlds/memory/buffer_view.hpp"
#include "nccl/membership.hpp"
#include "nccl/order_message.hpp"
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
  /// A message on its way to a member, or the receive that waits for one. It is kept and
  /// used again.
  class transfer final : public operation {
   public:
    transfer(order_mail& mail, operation_kind kind) noexcept;

    /// Sets what is sent; it stays until the send has ended.
    void set_text(bytes said) {
      text_ = std::move(said);
      view_ = const_buffer_view(text_.data(), text_.size(), dtype::uint8);
      source = const_view_list(std::span<const const_buffer_view>(&view_, 1));
    }
    [[nodiscard]] bytes take_received() noexcept { return std::move(far_.description); }

    transfer* next_idle = nullptr;
    std::uint64_t number = 0;  ///< of what rank 0 sends, see own_orders

   private:
    order_mail& mail_;
    device_payload far_;
    bytes text_;
    const_buffer_view view_;
  };
  struct received {
    rank_t from;
    bytes text;
  };

  void sent(transfer& t) noexcept;
  void arrived(transfer& t) noexcept;
  void refused(const transfer& t) noexcept;
  void drain() noexcept;

  membership& member_;
  host_backend& way_;
  reader& reader_;
  std::vector<std::unique_ptr<transfer>> transfers_;
  transfer* idle_ = nullptr;
  std::vector<transfer*> unarmed_;
  std::deque<received> unread_;
  bool is_draining_ = false;
  own_orders own_;
  bool hears_own_ = false;
};

}  // namespace manyworlds::inline v0::detail::nccl
