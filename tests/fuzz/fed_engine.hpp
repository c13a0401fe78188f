// An engine with one stream. The holder of the engine is its other end.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "io/engine.hpp"

namespace manyworlds::fuzzing {

struct idle_network final : network {
  io_result listen(const socket_address&, int) override { std::abort(); }
  io_result open_stream(const socket_address&) override { std::abort(); }
  void close(socket_handle) noexcept override {}
  void shut_down_sending(socket_handle) noexcept override {}
  void send_byte(socket_handle) noexcept override {}
  bool has_ended(socket_handle) noexcept override { return false; }
  socket_address local_address(socket_handle) const override { return {}; }
  socket_address peer_address(socket_handle) const override { return {}; }
};

/// What is sent goes at once; what is given is received as one piece, or as much of it as
/// is asked for. Time passes only when it is told to.
class fed_engine final : public engine {
 public:
  static constexpr socket_handle stream{1};

  /// How much of `piece` was taken: nothing while no receive waits.
  std::size_t give(std::span<const std::byte> piece) {
    if (!receive_) return 0;
    std::size_t count = 0;
    for (const iovec& entry : std::span(receive_->buffers, receive_->buffer_count)) {
      const std::size_t part = std::min(entry.iov_len, piece.size() - count);
      if (part > 0) std::memcpy(entry.iov_base, piece.data() + count, part);
      count += part;
    }
    if (count > 0) {
      end(*std::exchange(receive_, nullptr),
          io_result::success(static_cast<std::int64_t>(count)));
    }
    return count;
  }
  void let_pass(duration time) { now_ += time; }
  /// What was sent since the last call.
  [[nodiscard]] std::vector<std::byte> take_sent() { return std::exchange(sent_, {}); }

  [[nodiscard]] std::string_view name() const noexcept override { return "fed"; }
  [[nodiscard]] network& sockets() noexcept override { return network_; }
  [[nodiscard]] time_point now() const noexcept override { return now_; }
  void submit(io_request& r) noexcept override {
    if (r.kind == io_kind::receive) {
      receive_ = &r;
      return;
    }
    std::size_t count = 0;
    for (const iovec& entry : std::span(r.buffers, r.buffer_count)) {
      const auto* first = static_cast<const std::byte*>(entry.iov_base);
      sent_.insert(sent_.end(), first, first + entry.iov_len);
      count += entry.iov_len;
    }
    end(r, io_result::success(static_cast<std::int64_t>(count)));
  }
  void cancel(io_request& r) noexcept override {
    if (receive_ != &r) return;
    receive_ = nullptr;
    end(r, io_result::failure(ECANCELED));
  }
  bool poll() noexcept override {
    const std::vector<io_request*> ended = std::exchange(ended_, {});
    for (io_request* r : ended) r->ended(*r);
    return !ended.empty();
  }
  void wait(std::optional<time_point>) noexcept override {}
  void wake() noexcept override {}
  [[nodiscard]] int descriptor() noexcept override { return -1; }
  [[nodiscard]] bool prepare_foreign_wait() noexcept override { return true; }

 private:
  void end(io_request& r, io_result how) {
    r.result = how;
    ended_.push_back(&r);
  }

  idle_network network_;
  time_point now_{};
  io_request* receive_ = nullptr;
  std::vector<io_request*> ended_;
  std::vector<std::byte> sent_;
};

}  // namespace manyworlds::fuzzing
