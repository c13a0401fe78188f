// Shared link: the memory between two processes of one host, as the user reactor uses
// it for all their worlds.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "io/stream.hpp"
#include "link/chunk_owners.hpp"
#include "link/copy_thread.hpp"
#include "link/pairing.hpp"
#include "link/pool_exchange.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/detail/member_work.hpp"

namespace manyworlds::inline v0::detail::shm {

/// One world's use of a shared link: is told what happens in its slot.
class slot_listener {
 public:
  /// Reads a bounded number of cells, and goes on with what waited for room. Returns
  /// true if there was anything.
  virtual bool poll() noexcept = 0;
  /// Says whether `poll` would find something, or room that it waits for.
  [[nodiscard]] virtual bool has_something() noexcept = 0;
  /// Says the same before polling stops; if it is false, a wake-up comes when there is
  /// room.
  [[nodiscard]] virtual bool has_something_or_is_told() noexcept {
    return has_something();
  }
  /// Gives back the reserved chunk. Returns true if there was one.
  virtual bool give_back_reserved_chunk() noexcept { return false; }
  /// Called when the peer has closed its end of the wake-up socket: it is gone, or no
  /// longer uses the link.
  virtual void wake_ups_ended() noexcept = 0;

 protected:
  ~slot_listener() = default;
};

/// Is polled by the user reactor while a world uses it: one line for all parked
/// slots, and the ring of each slot that was used recently. While the reactor sleeps, a
/// byte on the wake-up socket wakes it.
///
/// Thread: made on the service reactor; `attach` and what follows it run on the user
/// reactor. The service reactor hands out slots (see link).
class shared_link final : public std::enable_shared_from_this<shared_link>,
                          private poller {
 public:
  /// Takes the pools from which its worlds send and a copy thread; null for none.
  shared_link(reactor& user, network& sockets, shared_parts parts,
              std::shared_ptr<pool_registry> ours = nullptr,
              std::shared_ptr<class copy_thread> helper = nullptr);
  ~shared_link();

  // Thread: any. These do not change, except that reading the peer may stop.
  [[nodiscard]] shm_segment& segment() noexcept { return *segment_; }
  /// Says whether the peer's memory is read. Once it is not, it never is again.
  [[nodiscard]] bool reads_peer() const noexcept {
    return reads_peer_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] class copy_thread* copy_thread() const noexcept {
    return copy_thread_.get();
  }
  [[nodiscard]] int side() const noexcept { return segment_->side(); }
  [[nodiscard]] cell_ring& outgoing(unsigned slot) const noexcept {
    MW_ASSERT(slot < slot_count, "a slot has a ring");
    return *reinterpret_cast<cell_ring*>(segment_->at(offset::ring(slot, side_)));
  }
  [[nodiscard]] cell_ring& incoming(unsigned slot) const noexcept {
    MW_ASSERT(slot < slot_count, "a slot has a ring");
    return *reinterpret_cast<cell_ring*>(segment_->at(offset::ring(slot, 1 - side_)));
  }

  // Thread: the user reactor.
  /// Is set while the peer's memory may be read.
  [[nodiscard]] const std::optional<remote_memory>& memory() const noexcept {
    return memory_;
  }
  /// Stops reading the peer's memory. Returns true the first time.
  bool stop_reading() noexcept {
    reads_peer_.store(false, std::memory_order_relaxed);
    return std::exchange(memory_, std::nullopt).has_value();
  }
  /// Tells `user` what happens in the slot from now on. Precondition: its pages are
  /// reserved, and no other world is attached to it.
  void attach(unsigned slot, slot_listener& user);
  /// Ends that: no call follows for the slot. Idempotent.
  void detach(unsigned slot) noexcept;
  /// Notes that the slot has something to go on with, or waits for room. All slots
  /// share the chunks and the offers, so it is polled in each turn, also when parked.
  void set_pending(unsigned slot, bool is_pending) noexcept {
    is_pending ? pending_.insert(slot) : pending_.erase(slot);
  }
  /// Shows the peer what was published in the slot, and wakes it if it sleeps.
  void notify(unsigned slot) noexcept {
    if (wake_ups_out_.notify(slot)) [[unlikely]]
      send_wake_up();
  }
  /// Keeps the peer awake: part of what it offered was read, and it will soon have
  /// something to do.
  void note_reading() noexcept { wake_ups_in_.note_reading(); }
  /// Wakes a peer that sleeps, for the same reason.
  void wake_peer() noexcept {
    if (wake_ups_out_.wake()) send_wake_up();
  }
  /// Returns whether the peer seems to sleep.
  [[nodiscard]] bool peer_sleeps() const noexcept { return wake_ups_out_.seems_asleep(); }
  /// Wakes a peer that says elsewhere that it sleeps.
  void wake_sleeper() noexcept { send_wake_up(); }
  /// Says whether another polled slot has something.
  [[nodiscard]] bool others_have_something(unsigned slot) noexcept;
  /// Reserves memory for more outgoing chunks. Returns false if all have it, or if
  /// there is none for now. Chunks that have it come back in any case.
  [[nodiscard]] bool add_chunks() noexcept;
  /// Returns whether `add_chunks` has more of them and was not refused any.
  [[nodiscard]] bool may_add_chunks() const noexcept {
    return chunks_with_memory_ < chunk_states::chunks && chunk_refusal_ == 0;
  }
  /// Returns the errno for which memory is refused, the first time; then 0.
  [[nodiscard]] int tell_of_refusal() noexcept {
    if (chunk_refusal_ == 0 || std::exchange(told_of_refusal_, true)) return 0;
    return chunk_refusal_;
  }
  /// Returns true the first time: what refuses a page to one world mostly refuses it to
  /// each.
  [[nodiscard]] bool tell_of_refused_page() noexcept {
    return !std::exchange(told_of_refused_page_, true);
  }
  /// Says that the kernel has marked the peer's futex: its pid may soon be another
  /// process's.
  [[nodiscard]] bool peer_has_died() const noexcept;
  [[nodiscard]] chunk_writer& chunks_out() noexcept { return chunks_out_; }
  /// Frees chunks that were sent in worlds that are over and will not be read. Returns
  /// false if there are none.
  bool reclaim_chunks() noexcept;
  /// Does the same for the chunks that slots have reserved.
  bool collect_reserved_chunks() noexcept;
  [[nodiscard]] chunk_owners& owners_out() noexcept { return owners_out_; }
  [[nodiscard]] chunk_reader& chunks_in() noexcept { return chunks_in_; }
  [[nodiscard]] offer_sender& offers_out() noexcept { return offers_out_; }
  [[nodiscard]] offer_receiver& offers_in() noexcept { return offers_in_; }
  [[nodiscard]] pool_exchange& pools() noexcept { return pools_; }
  [[nodiscard]] std::byte* chunk_out(unsigned index) const noexcept {
    MW_ASSERT(index < chunk_states::chunks, "a chunk lies in the slab");
    return segment_->at(offset::chunk(side_, index));
  }
  [[nodiscard]] const std::byte* chunk_in(unsigned index) const noexcept {
    MW_ASSERT(index < chunk_states::chunks, "a valid chunk lies in the slab");
    return segment_->at(offset::chunk(1 - side_, index));
  }

 private:
  /// Empty polls of a ring before its slot is parked.
  static constexpr unsigned patience = 2000;

  struct wake_request : io_request {
    explicit wake_request(shared_link& l) noexcept
        : io_request([](io_request& r) noexcept {
            static_cast<wake_request&>(r).owner.woken();
          }),
          owner(l) {}
    shared_link& owner;
  };

  template <class T>
  [[nodiscard]] T& in_segment(std::size_t offset) const noexcept {
    return *reinterpret_cast<T*>(segment_->at(offset));
  }

  bool poll() noexcept override;
  bool prepare_sleep(std::optional<duration>& limit) noexcept override;
  void cancel_sleep() noexcept override;
  void send_wake_up() noexcept;
  void await_wake_up() noexcept;
  void woken() noexcept;
  [[nodiscard]] bool is_being_read() noexcept;
  [[nodiscard]] bool any_has_something() noexcept;

  reactor& user_;
  std::unique_ptr<shm_segment> segment_;
  const int side_;
  network& sockets_;
  socket wake_socket_;
  std::optional<remote_memory> memory_;
  std::atomic<bool> reads_peer_;

  wake_up_sender wake_ups_out_;
  wake_up_receiver wake_ups_in_;
  chunk_writer chunks_out_;
  chunk_owners owners_out_;
  chunk_reader chunks_in_;
  offer_sender offers_out_;
  offer_receiver offers_in_;
  pool_exchange pools_;
  const std::shared_ptr<class copy_thread> copy_thread_;

  struct slot_use {
    slot_listener* user = nullptr;
    unsigned empty_polls = 0;
  };
  std::array<slot_use, slot_count> slots_{};
  std::size_t attached_ = 0;
  slot_set pending_;
  /// Slots that were not looked at, since the turn was used up; they come first in the
  /// next.
  slot_set postponed_;
  void trim() noexcept;
  void trim_later() noexcept;
  member_timer<&shared_link::trim> trim_{*this};
  unsigned chunks_with_memory_ = first_chunks;
  int chunk_refusal_ = 0;
  bool told_of_refusal_ = false;
  bool told_of_refused_page_ = false;
  time_point next_try_{};
  wake_request wake_request_{*this};
  iovec wake_place_{};
  std::array<std::byte, 64> wake_bytes_{};
  bool awaits_wake_up_ = false;
  time_point awake_until_{};
  /// Set while the engine holds our request.
  std::shared_ptr<shared_link> keeps_itself_;
};

}  // namespace manyworlds::inline v0::detail::shm
