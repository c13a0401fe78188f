#include "link/shared_link.hpp"

#include <linux/futex.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::shm {

namespace {
constexpr duration pause_of_reading = std::chrono::microseconds(200);
constexpr duration without_wake_ups = std::chrono::milliseconds(1);
/// Chunks that are reserved at once: a system call for each would cost more than the
/// memory.
constexpr unsigned chunks_at_once = 8;
/// How long memory is kept for chunks that are not needed.
constexpr duration until_trimmed = std::chrono::milliseconds(500);
/// The pause after a refusal, since room is looked for far more often.
constexpr duration until_next_try = std::chrono::milliseconds(10);
}  // namespace

shared_link::shared_link(reactor& user, network& sockets, shared_parts parts,
                         std::shared_ptr<pool_registry> ours,
                         std::shared_ptr<class copy_thread> helper)
    : poller(work_kind::brief),
      user_(user),
      segment_(std::move(parts.segment)),
      side_(segment_->side()),
      sockets_(sockets),
      wake_socket_(std::move(parts.wake_socket)),
      memory_(parts.memory),
      reads_peer_(memory_.has_value()),
      wake_ups_out_(
          in_segment<receiver_line<hardware_memory>>(offset::receiver(1 - side_)),
          in_segment<wake_up_line<hardware_memory>>(offset::wake_ups(1 - side_))),
      wake_ups_in_(in_segment<receiver_line<hardware_memory>>(offset::receiver(side_)),
                   in_segment<wake_up_line<hardware_memory>>(offset::wake_ups(side_))),
      chunks_out_(in_segment<chunk_states>(offset::slab(side_)), first_chunks),
      chunks_in_(in_segment<chunk_states>(offset::slab(1 - side_))),
      offers_out_(in_segment<offer_table>(offset::offers(side_))),
      offers_in_(in_segment<offer_table>(offset::offers(1 - side_))),
      pools_(std::move(parts.line), std::move(ours)),
      copy_thread_(std::move(helper)) {}

shared_link::~shared_link() {
  MW_ASSERT(!awaits_wake_up_, "a link stays while the engine holds its request");
}

void shared_link::attach(unsigned slot, slot_listener& user) {
  MW_ASSERT(slot < slot_count, "a slot that is attached exists");
  MW_ASSERT(!slots_[slot].user, "a slot is one world's");
  slots_[slot] = {&user, 0};
  owners_out_.reclaim(slot, [this](unsigned chunk) { chunks_out_.give_back(chunk); });
  if (++attached_ == 1) {
    user_.add(*this);
    await_wake_up();
    trim_later();
  }
  // The peer may have written before we looked.
  wake_ups_in_.start_polling(slot);
}

void shared_link::detach(unsigned slot) noexcept {
  MW_ASSERT(slot < slot_count, "a slot that is detached exists");
  if (!slots_[slot].user) return;
  MW_ASSERT(attached_ > 0, "a slot that is used is counted");
  slots_[slot] = {};
  pending_.erase(slot);
  postponed_.erase(slot);
  pools_.forget_page(slot);
  // What is still in its ring belongs to a world that is over.
  if (wake_ups_in_.polled().contains(slot)) wake_ups_in_.park(slot, [] { return false; });
  if (--attached_ > 0) return;
  user_.timers().disarm(trim_);
  user_.remove(*this);
  if (awaits_wake_up_) user_.io().cancel(wake_request_);
}

bool shared_link::poll() noexcept {
  bool did = false;
  if (wake_ups_in_.has_wake_ups()) [[unlikely]] {
    wake_ups_in_.take().for_each([this](unsigned slot) {
      // A peer may send wake-ups for a slot that is not open; they are ignored.
      if (!slots_[slot].user) return;
      slots_[slot].empty_polls = 0;
      if (!wake_ups_in_.polled().contains(slot)) wake_ups_in_.start_polling(slot);
    });
  }
  if (pools_.may_have_lost_some()) [[unlikely]] {
    if (pools_.tell_gone()) send_wake_up();
  }
  slot_set round = std::exchange(postponed_, {});
  if (round.empty()) {
    round = wake_ups_in_.polled();
    if (!pending_.empty()) [[unlikely]]
      round.insert(pending_);
  }
  // The next round is what this one leaves over, so that each slot has its turn (law
  // 9).
  bool is_enough = false;
  // Older work comes first (law 5).
  bool goes_straight_on = user_.has_nothing_ready();
  std::shared_ptr<shared_link> keeps;
  round.for_each([&, this](unsigned slot) {
    slot_use& use = slots_[slot];
    // Another slot's step may have closed this one.
    if (!use.user) return;
    if (is_enough) return postponed_.insert(slot);
    if (use.user->poll()) {
      did = true;
      slots_[slot].empty_polls = 0;
      // What a slot has made ready runs before the next one is looked at, which may hold
      // several messages for one of these tasks: where they were all taken at once, all
      // but the first were kept, and so copied twice. Messages of 8 and 26 KiB in eight
      // worlds took up to twice as long as in eight lanes of one. A task may end all that
      // uses this link.
      if (goes_straight_on && !user_.has_nothing_ready()) {
        keeps = shared_from_this();
        goes_straight_on = user_.run_straight_on();
      }
      is_enough = user_.is_turn_used_up();
      return;
    }
    // Parked slots are polled only while they have something pending.
    if (!wake_ups_in_.polled().contains(slot) || ++use.empty_polls != patience) return;
    wake_ups_in_.park(slot, [&use] { return use.user->has_something_or_is_told(); });
    use.empty_polls = 0;
  });
  return did;
}

bool shared_link::add_chunks() noexcept {
  if (chunks_with_memory_ == chunk_states::chunks) return false;
  if (chunk_refusal_ != 0 && user_.now() < next_try_) return false;
  const unsigned wanted = std::min(
      (chunks_with_memory_ / chunks_at_once + 1) * chunks_at_once, chunk_states::chunks);
  const std::size_t begin = offset::chunk(side_, chunks_with_memory_);
  chunk_refusal_ = segment_->reserve(begin, offset::chunk(side_, wanted) - begin);
  if (chunk_refusal_ != 0) {
    next_try_ = user_.now() + until_next_try;
    return false;
  }
  chunks_with_memory_ = wanted;
  chunks_out_.allow(wanted);
  trim_later();
  return true;
}

// The memory of chunks that were not needed lately goes back to the machine, so that a
// link that has rested holds as little as a fresh one.
void shared_link::trim() noexcept {
  MW_ASSERT(user_.is_current(), "a timer expires in its reactor's turn");
  // A chunk that a slot holds for its next message would keep the memory below it.
  collect_reserved_chunks();
  const unsigned kept = std::max(chunks_out_.used_lately(), first_chunks);
  if (kept < chunks_with_memory_) {
    chunks_out_.allow(kept);
    const std::size_t begin = offset::chunk(side_, kept);
    segment_->give_back(begin, offset::chunk(side_, chunks_with_memory_) - begin);
    chunks_with_memory_ = kept;
  }
  trim_later();
}

void shared_link::trim_later() noexcept {
  if (chunks_with_memory_ == first_chunks || trim_.is_armed()) return;
  user_.timers().arm(trim_, user_.now() + until_trimmed);
}

bool shared_link::reclaim_chunks() noexcept {
  bool any = false;
  owners_out_.reclaim_over([this](unsigned slot) { return slots_[slot].user != nullptr; },
                           [this, &any](unsigned chunk) {
                             chunks_out_.give_back(chunk);
                             any = true;
                           });
  return any;
}

bool shared_link::collect_reserved_chunks() noexcept {
  bool any = false;
  for (slot_use& use : slots_) any |= use.user && use.user->give_back_reserved_chunk();
  return any;
}

bool shared_link::peer_has_died() const noexcept {
  const auto& futex = in_segment<const liveness_futex>(offset::liveness(1 - side_));
  return (futex.load(std::memory_order_acquire) & FUTEX_OWNER_DIED) != 0;
}

bool shared_link::any_has_something() noexcept {
  bool any = false;
  const auto ask = [this, &any](unsigned slot) {
    any = any || (slots_[slot].user && slots_[slot].user->has_something_or_is_told());
  };
  wake_ups_in_.polled().for_each(ask);
  pending_.for_each(ask);
  return any;
}

bool shared_link::others_have_something(unsigned slot) noexcept {
  bool any = wake_ups_in_.has_wake_ups();
  wake_ups_in_.polled().for_each([&](unsigned other) {
    any = any ||
          (other != slot && slots_[other].user && slots_[other].user->has_something());
  });
  return any;
}

// A pull that is under way ends before we would have woken up. A peer that pauses does
// not keep us busy for longer than `pause_of_reading`.
bool shared_link::is_being_read() noexcept {
  const time_point now = user_.now();
  if (wake_ups_out_.has_read()) awake_until_ = now + pause_of_reading;
  return now < awake_until_;
}

bool shared_link::prepare_sleep(std::optional<duration>& limit) noexcept {
  if (offers_out_.in_use() > 0 && is_being_read()) return false;
  // A peer that has closed its socket and lives on is polled periodically.
  if (!awaits_wake_up_)
    limit = std::min(limit.value_or(without_wake_ups), without_wake_ups);
  return wake_ups_in_.prepare_sleep([this] { return any_has_something(); });
}

void shared_link::cancel_sleep() noexcept { wake_ups_in_.cancel_sleep(); }

// Nothing is sent when the socket is full of unread bytes, or the peer is gone: neither
// needs another one.
void shared_link::send_wake_up() noexcept { sockets_.send_byte(wake_socket_.handle()); }

void shared_link::await_wake_up() noexcept {
  if (awaits_wake_up_) return;
  wake_place_ = {wake_bytes_.data(), wake_bytes_.size()};
  wake_request_.kind = io_kind::receive;
  wake_request_.socket = wake_socket_.handle();
  wake_request_.buffers = &wake_place_;
  wake_request_.buffer_count = 1;
  MW_ASSERT(!keeps_itself_ && attached_ > 0,
            "a link that is used awaits one wake-up at a time");
  awaits_wake_up_ = true;
  user_.count_loose_requests(1);
  keeps_itself_ = shared_from_this();
  user_.io().submit(wake_request_);
}

void shared_link::woken() noexcept {
  MW_ASSERT(awaits_wake_up_ && keeps_itself_, "a wake-up comes to a link that awaits it");
  awaits_wake_up_ = false;
  user_.count_loose_requests(-1);
  const std::shared_ptr<shared_link> keeps = std::exchange(keeps_itself_, nullptr);
  // The end of the stream is the peer's end; the link notices it and breaks the worlds.
  const bool over = !wake_request_.result.ok() ? wake_request_.result.error() != ECANCELED
                                               : wake_request_.result.count() == 0;
  if (attached_ == 0) return;
  // The peer also sends a wake-up when one of its pools has gone, which may be unused so
  // far.
  pools_.poll();
  if (!over) return await_wake_up();
  for (slot_use& use : slots_) {
    if (use.user) use.user->wake_ups_ended();
  }
}

}  // namespace manyworlds::inline v0::detail::shm
