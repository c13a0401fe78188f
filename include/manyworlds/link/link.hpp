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

#include "manyworlds/coro/event.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/io/cpu_binding.hpp"
#include "manyworlds/io/stream.hpp"
#include "manyworlds/link/data_channel.hpp"
#include "manyworlds/link/process_address.hpp"
#include "manyworlds/link/wire.hpp"

namespace manyworlds::inline v0 {

class link;
namespace shm {
class neighbour;
class neighbourhood;
}  // namespace shm

/// What the owner of links hears. Called on the service reactor.
class link_events {
 public:
  /// A message of the layers above, in the order sent. Whatever it throws as wire_error
  /// ends the link as a protocol error.
  virtual void link_message(const std::shared_ptr<link>& l,
                            std::span<const std::byte> message) = 0;
  /// The peer, on this host, has made a place in shared memory for a world: its member
  /// `rank` speaks there. To be kept until the world is formed, or dropped.
  virtual void slot_offered(const std::shared_ptr<link>& l, std::uint64_t world_id,
                            rank_t rank, slot_lease slot) = 0;
  /// The link is over; the peer process with it, unless it said goodbye.
  virtual void link_ended(const std::shared_ptr<link>& l, enum cause why,
                          const std::string& detail) noexcept = 0;

 protected:
  ~link_events() = default;
};

/// The control connection to one peer process. Lives on the service reactor; what
/// tells of the peer's life (`last_heard` and what follows it) is for any thread.
class link : public std::enable_shared_from_this<link> {
 public:
  link(reactor& service, stream connection, process_address peer, link_events& events,
       shm::neighbourhood& neighbours);
  ~link();
  link(const link&) = delete;
  link& operator=(const link&) = delete;

  [[nodiscard]] const process_address& peer() const noexcept { return peer_; }
  /// Established and not over.
  [[nodiscard]] bool is_up() const noexcept { return up_; }
  /// The kernel has told, by more than the connection's end, that the peer is no more.
  [[nodiscard]] bool has_seen_death() const noexcept { return saw_death_; }
  /// The peer, or its kernel, has closed it: it is not over because this side gave up.
  [[nodiscard]] bool was_ended_by_peer() const noexcept {
    return peer_ended_ || saw_death_;
  }

  /// Queues a message. Never suspends: control messages are small; a peer that reads none
  /// for `send_limit` bytes ends the link.
  void send(std::span<const std::byte> message);
  /// Shows the peer that we live, and looks whether it does: in the memory that both
  /// share; else, if it `is_due`, by a message.
  void beat(std::uint64_t progress, cpu_binding cpu, bool is_due);
  /// Waits until the peer has answered a question that is sent now. What it had said
  /// before it read that question has been taken here by then. Ends also when the link is
  /// over; a peer that is alive and does not answer is the caller's to bound.
  [[nodiscard]] task<void> all_heard();
  /// Which CPU the peer's reactor is bound to, as its last beat said.
  [[nodiscard]] cpu_binding peer_cpu() const noexcept { return peer_cpu_; }
  /// Says goodbye, flushes, and ends the link in order.
  void say_goodbye();
  /// Nobody uses it here. The peer, if it does not either, answers with its goodbye;
  /// until then, and unless it declines, nobody here may begin to use it.
  void offer_end();
  [[nodiscard]] bool is_usable() const noexcept {
    return up_ && !leaving_ && !offered_end_;
  }
  /// The peer has declined since the last call.
  [[nodiscard]] bool take_declined() noexcept { return std::exchange(declined_, false); }
  /// Whether the peer lives on this host and shares memory with us: once that is known,
  /// or at `deadline` what is known then. While the link is up.
  [[nodiscard]] task<bool> settled(time_point deadline);
  [[nodiscard]] bool is_local() const noexcept;
  /// Of a local link: whether large messages are read from the peer's memory, and not
  /// copied through what is shared.
  [[nodiscard]] bool is_readable() const noexcept;
  /// A place in the shared memory for a world with the peer, which is told that member
  /// `rank` speaks there. Empty, and the world uses tcp, if there is none.
  [[nodiscard]] slot_lease lend_slot(std::uint64_t world_id, rank_t rank);
  [[nodiscard]] shm::neighbour& on_host() noexcept { return *neighbour_; }

  /// Ends it now: `link_ended` is called unless it was over already.
  void end(enum cause why, const std::string& detail) noexcept;

  /// Reads and writes until the link is over. One task per link, run by the endpoint.
  [[nodiscard]] task<void> run();

  [[nodiscard]] time_point last_heard() const noexcept {
    return time_point(duration(last_heard_.load(std::memory_order_relaxed)));
  }
  /// A sign of life from elsewhere: the peer's data connections. Any thread.
  void note_heard(time_point when) noexcept {
    last_heard_.store(when.time_since_epoch().count(), std::memory_order_relaxed);
  }
  /// The peer's reactor turns as of its last beat, and when that number last changed. Any
  /// thread.
  [[nodiscard]] std::uint64_t peer_turns() const noexcept {
    return peer_turns_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] time_point peer_progressed() const noexcept {
    return time_point(duration(peer_progressed_.load(std::memory_order_relaxed)));
  }

  /// Users of the link (worlds, dials); the endpoint ends a link that has had none for a
  /// while.
  void add_hold(int change) noexcept { holds_ += change; }
  [[nodiscard]] bool is_held() const noexcept { return holds_ > 0; }

  static constexpr std::size_t longest_message = std::size_t{1} << 20;
  static constexpr std::size_t send_limit = std::size_t{8} << 20;

 private:
  friend class shm::neighbour;

  enum class frame : std::uint8_t {
    beat,
    message,
    goodbye,
    unused,
    in_use,
    invitation,
    local_outcome,
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
  void take(frame kind, std::span<const std::byte> body);
  void note_progress(std::uint64_t turns) noexcept;
  /// The process is known to have ended, before its end of the connection has.
  void peer_is_gone(const std::string& noticed_by) noexcept;

  reactor& service_;
  stream connection_;
  process_address peer_;
  link_events& events_;
  std::unique_ptr<shm::neighbour> neighbour_;
  bytes outgoing_;
  event something_to_send_;
  event over_;
  /// Questions whose only sense is their place among the messages, counted.
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

}  // namespace manyworlds::inline v0
