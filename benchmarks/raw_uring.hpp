// Raw io_uring: each way in which the kernel sends and receives over one tcp connection,
// without the library. What the engine could use and does not is measured here.
#pragma once

#include <liburing.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "raw_limits.hpp"

namespace mwbench {

enum class sending {
  call,             ///< send(), which blocks
  tried,            ///< as the engine does: send(), and the ring only if that would block
  ring,             ///< IORING_OP_SEND
  write_fixed,      ///< IORING_OP_WRITE_FIXED from registered memory
  zero_copy,        ///< IORING_OP_SEND_ZC
  zero_copy_fixed,  ///< the same from registered memory
};

enum class receiving {
  call,       ///< recv() into the destination, which blocks
  tried,      ///< as the engine does: recv(), and the ring only if that would block
  ring,       ///< IORING_OP_RECV into the destination
  multishot,  ///< one request for all; a provided buffer each, copied to the destination
  bundle,     ///< the same with several provided buffers a completion
};

[[nodiscard]] const char* name_of(sending how) noexcept;
[[nodiscard]] const char* name_of(receiving how) noexcept;

/// One io_uring with the flags of the library's (`src/io/kernel_ring.hpp`). Throws
/// std::system_error if there is none.
class raw_ring {
 public:
  raw_ring();
  raw_ring(const raw_ring&) = delete;
  raw_ring& operator=(const raw_ring&) = delete;
  ~raw_ring() { io_uring_queue_exit(&ring_); }

  [[nodiscard]] io_uring* get() noexcept { return &ring_; }
  [[nodiscard]] io_uring_sqe& entry();
  /// Submits what is queued and returns the next completion. A spinning caller enters the
  /// kernel only to submit, or if the kernel says that it has something.
  [[nodiscard]] io_uring_cqe next(waiting how);

 private:
  io_uring ring_{};
};

/// Sends by one way. One send is under way at a time, as in the engine.
class raw_sender {
 public:
  /// `memory` holds all that is sent. It is registered where the way asks for that.
  /// Throws std::system_error where the kernel does not have this way.
  raw_sender(int fd, sending how, std::span<char> memory);
  void send_all(std::span<const char> data);
  /// Waits until the kernel reads none of the memory.
  void settle();

 private:
  [[nodiscard]] int send_some(std::span<const char> data);
  void prepare(io_uring_sqe& sqe, std::span<const char> data) const noexcept;

  const int fd_;
  const sending how_;
  std::optional<raw_ring> ring_;
  int notices_due_ = 0;
};

/// Receives by one way.
class raw_receiver {
 public:
  /// Throws std::system_error where the kernel does not have this way.
  raw_receiver(int fd, receiving how, waiting wait);
  raw_receiver(const raw_receiver&) = delete;
  raw_receiver& operator=(const raw_receiver&) = delete;
  ~raw_receiver();
  void receive_all(std::span<char> into);

 private:
  // 2 MiB, which stay in the cache of one core better than more would, in pieces that are
  // as long as a receive buffer of the kernel mostly is.
  static constexpr unsigned buffers = 32;
  static constexpr std::size_t buffer_bytes = std::size_t{64} << 10;
  static constexpr int group = 1;

  [[nodiscard]] bool has_provided() const noexcept {
    return how_ >= receiving::multishot;
  }
  void provide();
  void give(unsigned count) noexcept;
  [[nodiscard]] int receive_some(std::span<char> into);
  [[nodiscard]] int receive_provided(std::span<char> into);
  void await_provided();

  const int fd_;
  const receiving how_;
  const waiting wait_;
  std::optional<raw_ring> ring_;
  io_uring_buf_ring* ring_of_buffers_ = nullptr;
  std::unique_ptr<char[]> memory_;
  unsigned next_given_ = 0;
  bool is_armed_ = false;
  /// What came and was not copied yet: from here on, also around the end of the memory.
  std::size_t begin_ = 0;
  std::size_t left_ = 0;
  /// The buffers that the kernel filled for that.
  unsigned filled_ = 0;
};

}  // namespace mwbench
