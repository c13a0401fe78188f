// Link: what two processes share to talk. One per pair, used by all worlds they have in
// common.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "io/cpu_binding.hpp"
#include "io/stream.hpp"
#include "link/data_channel.hpp"
#include "link/wire.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/process_address.hpp"

namespace manyworlds::inline v0::detail {

class link;
namespace shm {
class local_discovery;
class local_peer;
}  // namespace shm

/// Is told what happens on links. Thread: the service reactor.
class link_listener {
 public:
  /// Receives a message of the layers above, in the order sent. A wire_error that it
  /// throws ends the link as a protocol error.
  virtual void link_message(const std::shared_ptr<link>& l,
                            std::span<const std::byte> message) = 0;
  /// Receives a slot that the peer, on this host, has taken for a world: its member
  /// `rank` speaks there. The owner keeps it until the world is formed, or drops it.
  virtual void slot_offered(const std::shared_ptr<link>& l, std::uint64_t world_id,
                            rank_t rank, shm_slot slot) = 0;
  /// Called once when the link is over. The peer process is over with it, unless it
  /// said goodbye.
  virtual void link_ended(const std::shared_ptr<link>& l, enum cause why,
                          const std::string& detail) noexcept = 0;

 protected:
  ~link_listener() = default;
};

/// The control connection to one peer process. Thread: the service reactor; the members
/// that report the peer's liveness (`last_heard` and those that follow it) may be
/// called on any.
class link : public std::enable_shared_from_this<link> {
 public:
  link(reactor& service, stream connection, process_address peer, link_listener& told,
       shm::local_discovery& discovery);
  ~link();
  link(const link&) = delete;
  link& operator=(const link&) = delete;

  [[nodiscard]] const process_address& peer() const noexcept { return peer_; }
  /// Says that the link is established and not over.
  [[nodiscard]] bool is_up() const noexcept { return up_; }
  /// Says that the kernel has reported the peer's death, by more than the connection's
  /// end.
  [[nodiscard]] bool has_seen_death() const noexcept { return saw_death_; }
  /// Says that the peer or its kernel has closed the link, and not this side.
  [[nodiscard]] bool was_ended_by_peer() const noexcept {
    return peer_ended_ || saw_death_;
  }

  /// Queues a message and never suspends, since control messages are small. A peer that
  /// reads none for `send_limit` bytes ends the link.
  void send(std::span<const std::byte> message);
  /// Shows a sign of life and looks for the peer's: in the memory that both share, or
  /// by a message if that `is_due`.
  void beat(std::uint64_t progress, cpu_binding cpu, bool is_due);
  /// Waits until the peer has answered a question that is sent now. By then all that it
  /// said before it read the question has been taken here. Returns also when the link
  /// is over. The caller bounds a live peer that does not answer.
  [[nodiscard]] task<void> all_heard();
  /// Returns the CPU that the peer's reactor is bound to, as its last beat said.
  [[nodiscard]] cpu_binding peer_cpu() const noexcept { return peer_cpu_; }
  /// Says goodbye, flushes, and ends the link in order.
  void say_goodbye();
  /// Offers to end a link that has no user here. A peer that does not use it either
  /// answers with its goodbye. Until then, unless it declines, no use may begin here.
  void offer_end();
  [[nodiscard]] bool is_usable() const noexcept {
    return up_ && !leaving_ && !offered_end_;
  }
  /// Says whether the peer has declined since the last call.
  [[nodiscard]] bool take_declined() noexcept { return std::exchange(declined_, false); }
  /// Returns the memory that is shared with the peer, if it lives on this host.
  [[nodiscard]] shm::local_peer& local() const noexcept { return *local_; }

  /// Called by each notice of the peer's death; the first one stands. It ends the link
  /// once what the peer said before has been read.
  void note_death(const char* noticed_by) noexcept {
    if (died_by_) return;
    died_by_ = noticed_by;
    died_.set();
  }
  /// Ends the link now; `link_ended` is called unless it was over already.
  void end(enum cause why, const std::string& detail) noexcept;

  /// Reads and writes until the link is over. One task per link, run by the endpoint.
  [[nodiscard]] task<void> run();

  [[nodiscard]] time_point last_heard() const noexcept {
    return time_point(duration(last_heard_.load(std::memory_order_relaxed)));
  }
  /// Notes a sign of life from the peer's data connections. Thread: any.
  void note_heard(time_point when) noexcept {
    last_heard_.store(when.time_since_epoch().count(), std::memory_order_relaxed);
  }
  /// Returns the peer's reactor turns as of its last beat; `peer_progressed` says when
  /// that number last changed. Thread: any.
  [[nodiscard]] std::uint64_t peer_turns() const noexcept {
    return peer_turns_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] time_point peer_progressed() const noexcept {
    return time_point(duration(peer_progressed_.load(std::memory_order_relaxed)));
  }

  /// Counts users of the link (worlds, dials). The endpoint ends a link that has had
  /// none for a while.
  void add_hold(int change) noexcept {
    holds_ += change;
    MW_ASSERT(holds_ >= 0, "a hold on a link is released once");
  }
  [[nodiscard]] bool is_held() const noexcept { return holds_ > 0; }

  static constexpr std::size_t longest_message = std::size_t{1} << 20;
  static constexpr std::size_t send_limit = std::size_t{8} << 20;

 private:
  friend class shm::local_peer;

  enum class frame : std::uint8_t {
    beat,
    message,
    goodbye,
    unused,
    in_use,
    pairing_nonces,
    pairing_outcome,
    slot,
    slots_returned,
    slots_ceded,
    question,
    answer,
    last = answer
  };

  void queue(frame kind, std::span<const std::byte> body);
  [[nodiscard]] task<void> read();
  [[nodiscard]] task<void> write();
  [[nodiscard]] task<void> until_peer_died();
  void take(frame kind, std::span<const std::byte> body);
  void note_progress(std::uint64_t turns) noexcept;
  /// Ends the link of a process that is known to have ended, before its end of the
  /// connection has.
  void peer_is_gone(const std::string& noticed_by) noexcept;

  reactor& service_;
  stream connection_;
  process_address peer_;
  link_listener& told_;
  std::unique_ptr<shm::local_peer> local_;
  bytes outgoing_;
  event something_to_send_;
  event over_;
  event died_;
  const char* died_by_ = nullptr;
  /// Questions have no content: their place among the messages is what counts.
  std::uint64_t questions_asked_ = 0;
  std::uint64_t questions_answered_ = 0;
  event answered_;
  cpu_binding peer_cpu_;
  bool up_ = true;
  bool leaving_ = false;
  bool offered_end_ = false;
  bool declined_ = false;
  bool peer_left_ = false;
  bool saw_death_ = false;
  bool peer_ended_ = false;
  std::atomic<std::int64_t> last_heard_;
  std::atomic<std::uint64_t> peer_turns_{0};
  int holds_ = 0;
  std::atomic<std::int64_t> peer_progressed_;
};

}  // namespace manyworlds::inline v0::detail
