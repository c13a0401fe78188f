// Shared link: the memory between two processes of one host, as the user reactor uses it
// for all their worlds.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "chunk_owners.hpp"
#include "manyworlds/io/stream.hpp"
#include "meeting_place.hpp"
#include "mover.hpp"
#include "pool_exchange.hpp"

namespace manyworlds::inline v0::shm {

/// One world's use of a shared link: who is told when there is something in its slot.
class slot_events {
 public:
  /// Reads what is there, a bounded number of cells; also goes on with what waited for
  /// room. True if there was anything.
  virtual bool look() noexcept = 0;
  /// Whether `look` would find something, or room that it waits for.
  [[nodiscard]] virtual bool has_something() noexcept = 0;
  /// The same, asked before nobody looks any more: if not, the peer rings for room.
  [[nodiscard]] virtual bool has_something_or_is_told() noexcept {
    return has_something();
  }
  /// Gives back a chunk that is held ready and not used. True if there was one.
  virtual bool give_back_spare() noexcept { return false; }
  /// The peer has closed its end of the bell: it is gone, or uses the link no more.
  virtual void bell_ended() noexcept = 0;

 protected:
  ~slot_events() = default;
};

/// Polled by the user reactor while a world uses it: one line for all slots that are
/// cold, and the ring of each slot that was used a moment ago. Sleeping, it is woken by a
/// byte on the bell.
///
/// Made on the service reactor; `attach` and everything after it belongs to the user
/// reactor's thread. Slots are handed out by the service reactor (see link).
class shared_link final : public std::enable_shared_from_this<shared_link>,
                          private poller {
 public:
  /// `ours`: the pools from which its worlds send; null for none. So is `helper`.
  shared_link(reactor& user, network& sockets, shared_parts parts,
              std::shared_ptr<pool_registry> ours = nullptr,
              std::shared_ptr<class mover> helper = nullptr);
  ~shared_link();

  // Any thread: fixed.
  [[nodiscard]] shared_arena& arena() noexcept { return *arena_; }
  /// Whether the peer's memory is read; once not, never again.
  [[nodiscard]] bool reads_peer() const noexcept {
    return reads_peer_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] class mover* mover() const noexcept { return mover_.get(); }
  [[nodiscard]] int side() const noexcept { return arena_->side(); }
  [[nodiscard]] cell_ring& outgoing(unsigned slot) const noexcept {
    return *reinterpret_cast<cell_ring*>(arena_->at(offset::ring(slot, side_)));
  }
  [[nodiscard]] cell_ring& incoming(unsigned slot) const noexcept {
    return *reinterpret_cast<cell_ring*>(arena_->at(offset::ring(slot, 1 - side_)));
  }

  // The user reactor.
  /// Set as long as the peer's memory may be read.
  [[nodiscard]] const std::optional<remote_memory>& memory() const noexcept {
    return memory_;
  }
  /// Reading is refused from now on; true the first time.
  bool stop_reading() noexcept {
    reads_peer_.store(false, std::memory_order_relaxed);
    return std::exchange(memory_, std::nullopt).has_value();
  }
  /// From now on the slot's events are called. Its pages must have been reserved.
  void attach(unsigned slot, slot_events& events);
  /// Nothing is called for the slot any more.
  void detach(unsigned slot) noexcept;
  /// The slot has something to go on with, or waits for room: as all slots share the
  /// chunks and the offers, it is looked at in each turn, hot or cold.
  void set_pending(unsigned slot, bool is_pending) noexcept {
    is_pending ? pending_.insert(slot) : pending_.erase(slot);
  }
  /// What was published in the slot may be seen by the peer; wakes it if it sleeps.
  void notify(unsigned slot) noexcept {
    if (ringer_.notify(slot)) [[unlikely]]
      ring();
  }
  /// Part of what the peer has offered was read, and it will soon have something to do:
  /// it does not fall asleep now.
  void note_reading() noexcept { listener_.note_reading(); }
  /// The same, and if it sleeps already, it wakes meanwhile.
  void wake_peer() noexcept {
    if (ringer_.wake()) ring();
  }
  /// Whether one of the others that are looked at has something.
  [[nodiscard]] bool others_have_something(unsigned slot) noexcept;
  /// Gets memory for more outgoing chunks: false if they all have it, or none is to be
  /// had for now. Those that have it come back in any case.
  [[nodiscard]] bool add_chunks() noexcept;
  /// The errno for which memory is refused, the first time; then 0.
  [[nodiscard]] int tell_of_refusal() noexcept {
    if (chunk_refusal_ == 0 || std::exchange(told_of_refusal_, true)) return 0;
    return chunk_refusal_;
  }
  /// The kernel has written into its death word: its pid may soon be another's.
  [[nodiscard]] bool peer_has_died() const noexcept;
  [[nodiscard]] chunk_writer& chunks_out() noexcept { return chunks_out_; }
  /// Frees those that were sent in worlds that are over and that nobody will read. False
  /// if there are none.
  bool reclaim_chunks() noexcept;
  /// The same of those that other slots hold ready.
  bool collect_spares() noexcept;
  [[nodiscard]] chunk_owners& owners_out() noexcept { return owners_out_; }
  [[nodiscard]] chunk_reader& chunks_in() noexcept { return chunks_in_; }
  [[nodiscard]] offer_sender& offers_out() noexcept { return offers_out_; }
  [[nodiscard]] offer_receiver& offers_in() noexcept { return offers_in_; }
  [[nodiscard]] pool_exchange& pools() noexcept { return pools_; }
  [[nodiscard]] std::byte* chunk_out(unsigned index) const noexcept {
    return arena_->at(offset::chunk(side_, index));
  }
  [[nodiscard]] const std::byte* chunk_in(unsigned index) const noexcept {
    return arena_->at(offset::chunk(1 - side_, index));
  }

 private:
  /// Empty looks at a hot ring before the bell is trusted with it.
  static constexpr unsigned patience = 2000;

  struct listening : io_request {
    explicit listening(shared_link& l) noexcept
        : io_request([](io_request& r) noexcept {
            static_cast<listening&>(r).owner.heard_bell();
          }),
          owner(l) {}
    shared_link& owner;
  };

  template <class T>
  [[nodiscard]] T& in_arena(std::size_t offset) const noexcept {
    return *reinterpret_cast<T*>(arena_->at(offset));
  }

  bool poll() noexcept override;
  bool prepare_sleep(std::optional<duration>& limit) noexcept override;
  void cancel_sleep() noexcept override;
  void ring() noexcept;
  void listen_for_bell() noexcept;
  void heard_bell() noexcept;
  [[nodiscard]] bool is_being_read() noexcept;
  [[nodiscard]] bool any_has_something() noexcept;

  reactor& user_;
  std::unique_ptr<shared_arena> arena_;
  const int side_;
  network& sockets_;
  socket bell_;
  std::optional<remote_memory> memory_;
  std::atomic<bool> reads_peer_;

  bell_ringer ringer_;
  bell_listener listener_;
  chunk_writer chunks_out_;
  chunk_owners owners_out_;
  chunk_reader chunks_in_;
  offer_sender offers_out_;
  offer_receiver offers_in_;
  pool_exchange pools_;
  const std::shared_ptr<class mover> mover_;

  struct slot_use {
    slot_events* events = nullptr;
    unsigned empty_looks = 0;
  };
  std::array<slot_use, slot_count> slots_{};
  std::size_t attached_ = 0;
  slot_set pending_;
  /// Not looked at, since the turn was used up: first in the next.
  slot_set postponed_;
  unsigned chunks_with_memory_ = first_chunks;
  int chunk_refusal_ = 0;
  bool told_of_refusal_ = false;
  time_point next_try_{};
  listening listening_{*this};
  iovec bell_place_{};
  std::array<std::byte, 64> bell_bytes_{};
  bool is_listening_ = false;
  time_point awake_until_{};
  /// While the engine holds our request.
  std::shared_ptr<shared_link> keeps_itself_;
};

}  // namespace manyworlds::inline v0::shm
