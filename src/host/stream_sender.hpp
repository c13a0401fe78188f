// Stream sender: the outgoing half over a byte stream: batches of frames, and slices of
// the users' memory.
#pragma once

#include "outgoing_batch.hpp"
#include "sender.hpp"

namespace manyworlds::inline v0::host {

class stream_sender final : public sender {
 public:
  using sender::sender;

  void control(const frame& f) override { batch_.append(f); }
  [[nodiscard]] bool has_something() const noexcept override {
    return batch_.queued_bytes() > 0 || !active_.empty();
  }

  /// Opens the next batch if there is anything to send; true if one is open.
  bool next_batch();
  [[nodiscard]] outgoing_batch& batch() noexcept { return batch_; }
  [[nodiscard]] const outgoing_batch& batch() const noexcept { return batch_; }
  /// The request ended; the kernel took bytes, or none.
  void sent(std::size_t count);
  /// The request in flight should end early, so that memory is given back.
  [[nodiscard]] bool must_cancel() const noexcept {
    return source_ &&
           (source_->wanted == ending::withdrawn || source_->wanted == ending::closed ||
            source_->wanted == ending::discarded);
  }

 private:
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
  /// Whose memory the open batch refers to.
  pending_send* source_ = nullptr;
};

}  // namespace manyworlds::inline v0::host
