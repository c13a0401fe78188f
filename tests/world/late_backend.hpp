// Late backend: wraps the default one, counts bytes and begins each send late. A worked
// example of src/EXTENDING.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "manyworlds/detail/member_work.hpp"
#include "world/backend_factory.hpp"

namespace manyworlds::inline v0::detail {

/// Begins each send late, and counts its bytes.
class late_backend final : public backend {
 public:
  late_backend(backend_parts parts, duration delay, std::atomic<std::uint64_t>& bytes)
      : home_(parts.home()),
        inner_(make_host_backend(std::move(parts))),
        delay_(delay),
        bytes_(bytes) {}
  ~late_backend() override { home_.timers().disarm(timer_); }

  void start(operation& op) noexcept override {
    if (op.kind != operation_kind::send) return inner_->start(op);
    bytes_ += op.source.total_bytes();
    late_.push_back({home_.now() + delay_, &op});
    if (late_.size() == 1) home_.timers().arm(timer_, late_.front().due);
  }
  bool withdraw(operation& op) noexcept override {
    const auto is_it = [&](const late_send& each) { return each.op == &op; };
    return std::erase_if(late_, is_it) > 0 || inner_->withdraw(op);
  }
  void quiesce(work& quiet) noexcept override {
    late_.clear();  // The world ends them.
    inner_->quiesce(quiet);
  }
  void leave(work& gone, time_point deadline) noexcept override {
    begin_until(time_point::max());  // What was accepted is delivered.
    inner_->leave(gone, deadline);
  }

  // The rest is passed on as it is.
  void discard(rank_t peer, lane on) noexcept override { inner_->discard(peer, on); }
  std::vector<undelivered_messages> undelivered() const override {
    return inner_->undelivered();
  }
  std::vector<lane_status> lanes() const override { return inner_->lanes(); }
  std::optional<collective_status> collective() const override {
    return inner_->collective();
  }
  transfer_counters counters() const noexcept override { return inner_->counters(); }
  const char* transport() const noexcept override { return "late"; }

 private:
  struct late_send {
    time_point due;
    operation* op;
  };

  void begin() noexcept { begin_until(home_.now()); }
  /// Keeps their order (law 5). A send that ends at once may start the next one.
  void begin_until(time_point now) noexcept {
    while (!late_.empty() && late_.front().due <= now) {
      operation& op = *late_.front().op;
      late_.pop_front();
      inner_->start(op);
    }
    if (!late_.empty()) home_.timers().arm(timer_, late_.front().due);
  }

  reactor& home_;
  std::unique_ptr<backend> inner_;
  const duration delay_;
  std::atomic<std::uint64_t>& bytes_;
  std::deque<late_send> late_;
  member_timer<&late_backend::begin> timer_{*this};
};

/// Thread: the reactor of each of its runtimes.
class late_exchange final : public backend_factory {
 public:
  explicit late_exchange(duration delay) noexcept : delay_(delay) {}
  std::unique_ptr<backend> make_backend(backend_parts parts) override {
    return std::make_unique<late_backend>(std::move(parts), delay_, bytes_);
  }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  const duration delay_;
  std::atomic<std::uint64_t> bytes_ = 0;
};

}  // namespace manyworlds::inline v0::detail
