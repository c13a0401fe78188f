// Call record: one call at its leader, from its admission until its stream is dropped.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "call_wire.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/serve/dispatcher.hpp"

namespace manyworlds::inline v0 {

class worker_link;

/// Owned by whoever awaits the call, then by its stream. The queue and the worker's slot
/// refer to it until it ends. On the dispatcher's reactor alone.
class call_record {
 public:
  enum class phase : unsigned char {
    queued,   ///< waits for a worker
    sending,  ///< has a slot; its request is being sent
    asked,    ///< has a slot, whose worker has the request
    over,     ///< has no slot any more
  };

  call_record(std::shared_ptr<dispatch_core> core, pick_reference pick,
              std::uint64_t number) noexcept;
  call_record(const call_record&) = delete;
  call_record& operator=(const call_record&) = delete;
  ~call_record();

  /// Of the order of admission.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] phase at() const noexcept { return phase_; }
  [[nodiscard]] pick_reference& pick() noexcept { return pick_; }
  [[nodiscard]] worker_link& link() const noexcept { return *link_; }
  [[nodiscard]] bool has_slot() const noexcept { return link_ != nullptr; }
  [[nodiscard]] std::uint32_t slot() const noexcept { return slot_; }
  [[nodiscard]] int tries() const noexcept { return tries_; }
  [[nodiscard]] time_point deadline() const noexcept { return deadline_; }
  /// Something came of a worker: nobody else may be asked.
  [[nodiscard]] bool is_answered() const noexcept {
    return came_ > 0 || phase_ == phase::over;
  }

  // --- by whoever awaits the call
  void begin(executor& home, duration limit, std::stop_token token);
  /// Until something has changed.
  [[nodiscard]] event_awaiter changed() noexcept { return changed_.wait(); }
  void set_asked() noexcept;
  /// Throws if it is over and there is nothing to read.
  void check() const;

  // --- by the dispatcher
  void set_queued() noexcept;
  void set_sending(worker_link& link, std::uint32_t slot) noexcept;
  /// Its slot is another's now.
  void let_go_of_slot() noexcept { link_ = nullptr; }
  /// Ended by its worker.
  void end(failure f) noexcept;
  /// Ended otherwise: its worker, if it has one, is told to stop.
  void give_up(failure f) noexcept;
  void give_up(std::exception_ptr error) noexcept;
  void push(bytes reply);
  /// So much was given up by the worker, and will not come.
  void skip(std::uint64_t cost) noexcept;
  /// Its worker is gone, and nothing had come: true if another may be asked.
  [[nodiscard]] bool is_lost(const failure& why, int most_tries) noexcept;

  /// Since when there is no worker.
  time_point alone_since = time_point::max();

  // --- by the stream's reader
  [[nodiscard]] bool has_news() const noexcept {
    return next_ < replies_.size() || phase_ == phase::over;
  }
  [[nodiscard]] std::optional<bytes> take_reply() noexcept;
  /// How it ended, if it is over; says nothing if in order.
  [[nodiscard]] const failure& ending() const noexcept { return failure_; }
  [[nodiscard]] bool is_being_read() const noexcept { return reader_ != nullptr; }
  void read_by(next_reply_awaiter* reader) noexcept { reader_ = reader; }
  [[nodiscard]] std::uint64_t received() const noexcept { return received_; }
  /// Cost of the replies that came, and of those that were read.
  [[nodiscard]] std::uint64_t cost_of_come() const noexcept { return cost_of_come_; }
  [[nodiscard]] std::uint64_t cost_of_read() const noexcept { return cost_of_read_; }

 private:
  void finish(failure f) noexcept;
  void note_change() noexcept;
  void note_read(std::uint64_t cost) noexcept;

  const std::shared_ptr<dispatch_core> core_;
  pick_reference pick_;
  const std::uint64_t number_;
  phase phase_ = phase::queued;
  call_watch watch_;
  time_point deadline_ = time_point::max();
  event changed_;
  worker_link* link_ = nullptr;
  std::uint32_t slot_ = 0;
  int tries_ = 0;
  failure failure_;
  std::exception_ptr error_;

  std::vector<bytes> replies_;
  std::size_t next_ = 0;
  std::uint64_t came_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t cost_of_come_ = 0;
  std::uint64_t cost_of_read_ = 0;
  next_reply_awaiter* reader_ = nullptr;
};

}  // namespace manyworlds::inline v0
