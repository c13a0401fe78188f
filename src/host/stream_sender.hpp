// Stream sender: the outgoing half over a byte stream: batches of frames, and slices of
// the users' memory.
#pragma once

#include "host/outgoing_batch.hpp"
#include "host/sender.hpp"

namespace manyworlds::inline v0::detail::host {

class stream_sender final : public sender {
 public:
  using sender::sender;

  void control(const frame& f) override { batch_.append(f); }
  /// Sends queue little more than a message: the rest are answers that are not read.
  [[nodiscard]] bool is_backed_up() const noexcept override {
    return batch_.queued_bytes() >= core_.options.eager_limit + most_answers;
  }
  [[nodiscard]] bool has_something() const noexcept override {
    return batch_.queued_bytes() > 0 || !active_.empty();
  }

  /// Queues a message that goes unasked, if the lane, the windows and the queue take it
  /// now. Returns false, with nothing done, if it must be started as any other.
  [[nodiscard]] bool try_send(const operation& op);

  /// Opens the next batch if there is something to send. Returns whether one is open.
  bool next_batch();
  [[nodiscard]] outgoing_batch& batch() noexcept { return batch_; }
  [[nodiscard]] const outgoing_batch& batch() const noexcept { return batch_; }
  /// Called when the request has ended and the kernel has taken `count` bytes.
  void sent(std::size_t count);
  /// Returns whether the request in flight should end early, to return memory.
  [[nodiscard]] bool must_cancel() const noexcept {
    return source_ &&
           (source_->wanted == ending::withdrawn || source_->wanted == ending::closed ||
            source_->wanted == ending::discarded);
  }

 private:
  static constexpr std::size_t most_answers = std::size_t{1} << 20;

  [[nodiscard]] std::size_t eager_limit() const noexcept override {
    return core_.options.eager_limit;
  }
  [[nodiscard]] bool is_full() noexcept override;
  [[nodiscard]] bool has_offer_room(bool) noexcept override { return true; }
  void put(const frame& f, const operation& op, pending_send* p) override;
  [[nodiscard]] bool is_in_use(const pending_send& p) const noexcept override {
    return source_ == &p;
  }
  [[nodiscard]] bool revoke(pending_send&) noexcept override { return true; }
  [[nodiscard]] const char* check_taken(const pending_send&) const noexcept override {
    return "a message taken that was not sent whole";
  }
  void forget(pending_send&) noexcept override {}

  outgoing_batch batch_;
  /// The send that owns the user memory in the open batch.
  pending_send* source_ = nullptr;
};

}  // namespace manyworlds::inline v0::detail::host
