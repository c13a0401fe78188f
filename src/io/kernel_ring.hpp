// Kernel ring: owns one io_uring, made with the best flags this kernel takes.
#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>

namespace manyworlds::inline v0::detail {

/// One io_uring. Thread: any may make it, disabled; the thread that enables it owns it
/// from then on (SINGLE_ISSUER), until it is renewed.
class kernel_ring {
 public:
  /// Makes the ring; `error()` tells if that failed.
  kernel_ring() noexcept;
  kernel_ring(const kernel_ring&) = delete;
  kernel_ring& operator=(const kernel_ring&) = delete;
  ~kernel_ring();

  /// Returns 0, or the errno for which there is no ring with all that the engine needs.
  [[nodiscard]] int error() const noexcept { return error_; }
  [[nodiscard]] bool is_enabled() const noexcept { return enabled_; }
  void enable() noexcept;
  /// Returns whether the calling thread may use the ring, which is enabled.
  [[nodiscard]] bool is_ours() noexcept;
  /// Puts a new ring in place of this one, since a ring cannot change its owner. Returns
  /// an errno if there is none, and keeps this one. Precondition: nothing is in flight.
  [[nodiscard]] int renew() noexcept;
  /// Cancels all requests. Their ends come later, and one with the user data `own`.
  void cancel_everything(std::uint64_t own) noexcept;
  /// Cancels all requests and waits until `in_flight` of them, with user data above
  /// `own`, have ended. Gives up after a second without an end.
  void stop_everything(std::size_t in_flight, std::uint64_t own) noexcept;
  [[nodiscard]] io_uring* get() noexcept { return &ring_; }

 private:
  [[nodiscard]] int make() noexcept;
  [[nodiscard]] int lacks() noexcept;

  io_uring ring_{};
  bool made_ = false;
  bool enabled_ = false;
  int error_ = 0;
};

}  // namespace manyworlds::inline v0::detail
