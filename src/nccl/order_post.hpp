// Order post: one order message on its way to a member, or the receive that waits for
// one.
#pragma once

#include "manyworlds/detail/operation.hpp"
#include "manyworlds/memory/buffer_view.hpp"
#include "nccl/order_message.hpp"

namespace manyworlds::inline v0::detail::nccl {

class order_mail;

/// Lifetime: kept by its `order_mail` and used again.
class order_post final : public operation {
 public:
  order_post(order_mail& mail, operation_kind kind) noexcept;

  /// Sets what is sent; it stays until the send has ended.
  void set_text(bytes said) {
    text_ = std::move(said);
    view_ = const_buffer_view(text_.data(), text_.size(), dtype::uint8);
    source = const_view_list(std::span<const const_buffer_view>(&view_, 1));
  }
  [[nodiscard]] bytes take_received() noexcept { return std::move(far_.description); }

  order_post* next_idle = nullptr;
  std::uint64_t number = 0;  ///< of what rank 0 sends, see own_orders

 private:
  order_mail& mail_;
  device_payload far_;
  bytes text_;
  const_buffer_view view_;
};

}  // namespace manyworlds::inline v0::detail::nccl
