#include "host/payload_reader.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "host/cell_receiver.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "memory/payload_copy.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

constexpr std::size_t pieces_at_once = 64;
/// Limits of one system call; its fixed cost is that of about 8 KiB.
constexpr std::size_t largest_slice = std::size_t{512} * 1024;
constexpr std::size_t smallest_slice = std::size_t{64} * 1024;
static_assert(largest_slice % smallest_slice == 0);
/// The time for one slice: the speed of memory differs by a factor of ten, and so does
/// that of new pages.
constexpr duration slice_time = std::chrono::microseconds(60);
/// Less than this is nearly done when a second thread has woken up. With two threads 2
/// MiB moved at 7 to 23 GB/s instead of 11; from 3 MiB on it was always 1.6 to 1.8
/// times as fast.
constexpr std::size_t least_moved = std::size_t{3} * 1024 * 1024;
/// The copy thread reads half of what is left at a time, up to this limit. It keeps no
/// turn waiting, and each further job costs both threads 10 to 20 us. With jobs of one
/// slice, two threads were slower than one (16 MiB: 2.0 ms; so 1.0; one alone 1.6).
constexpr std::size_t largest_job = std::size_t{4} * 1024 * 1024;
/// Limits the windows of one list: a peer that offers next to nothing in each must not
/// keep us busy.
constexpr unsigned most_windows = shm::copy_job::most_pieces / payload_cursor::window + 1;
/// This far before the end of a payload its sender no longer falls asleep. Before that
/// it may: staying awake for a long payload would only keep a CPU busy.
constexpr std::size_t kept_awake = std::size_t{2} * 1024 * 1024;
/// Less than this ends before the sender would fall asleep, and telling it would cost
/// both sides a cache line a message.
constexpr std::size_t soon_read = std::size_t{256} * 1024;
/// This far before the end a sleeping sender is woken: waking takes about as long as
/// reading this much.
constexpr std::size_t wake_ahead = std::size_t{512} * 1024;
/// Less than this is read before the sender has answered.
constexpr std::size_t least_helped = std::size_t{96} * 1024;
/// What is read first of a payload that its sender may help with, while that has yet to
/// see that it was asked. From one that sends no slice twice as much is read each time.
constexpr std::size_t first_helped = std::size_t{16} * 1024;
constexpr std::size_t most_helped = std::size_t{128} * 1024;
/// A sender that goes on sends a slice in 1 to 4 us; a look takes 50 to 100 ns. Both end
/// the wait: a simulation's clock stands still while a reactor looks.
constexpr unsigned looks_for_slice = 128;
constexpr duration slice_comes_within = std::chrono::microseconds(12);
static_assert(soon_read <= wake_ahead && wake_ahead <= kept_awake,
              "a wake-up falls into the end that is announced");
static_assert(2 * largest_slice <= least_moved, "what is moved is worth two slices");

std::size_t bytes_of(std::span<const iovec> pieces) noexcept {
  std::size_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  return bytes;
}

}  // namespace

bool payload_reader::begin(inbound_message& m) {
  MW_ASSERT(m.offered && m.is_being_brought(),
            "an offer is read for a receive or to keep it");
  MW_ASSERT(m.target.remaining() == m.payload_bytes,
            "a payload is brought from its start");
  m.awaits_slices = 0;
  m.reads_next = first_helped;
  if (m.payload_bytes >= soon_read && m.payload_bytes <= kept_awake) {
    link_.note_reading();
  }
  if (m.remote.pool > 0) {
    const char* wrong = nullptr;
    const bool can = link_.pools().pool_of_peer(m.remote.pool - 1, wrong) != nullptr;
    // The step that reads reports what is wrong.
    if (can || wrong) {
      readings_.push_back(
          {&m, payload_cursor(m.remote, m.payload_bytes, payload_cursor::place::pools)});
      return true;
    }
  }
  if (!link_.memory()) return false;
  readings_.push_back(
      {&m, payload_cursor(m.remote, m.payload_bytes, payload_cursor::place::memory)});
  return true;
}

void payload_reader::stop() noexcept {
  stop_moving();
  readings_.clear();
}

// The receive's memory may have another owner after this returns: it waits for the
// copy thread's slice.
void payload_reader::let_go(inbound_message& m) noexcept {
  if (moved_for_ == &m) stop_moving();
  std::erase_if(readings_, [&](const reading& r) { return r.message == &m; });
}

const char* payload_reader::read_slice() {
  if (moved_for_ && moving_->has_ended()) {
    if (const char* wrong = collect_moved(*moved_for_)) return wrong;
    // An error let the message go.
    if (readings_.empty()) return nullptr;
  }
  MW_ASSERT(!readings_.empty(), "a slice is read of what is being read");
  reading& r = readings_.front();
  inbound_message& m = *r.message;
  MW_ASSERT(m.offered && m.is_being_brought(), "what is read was not let go");
  if (m.is_read_too) return read_from_end(m);
  MW_ASSERT(r.source.remaining() == m.target.remaining(),
            "a payload has as many bytes left as the place that it goes to");
  if (!r.source.is_in_pools()) {
    // Another world of this link may have found that reading is forbidden.
    if (!link_.memory()) {
      ask_instead(m);
      return nullptr;
    }
    if (r.source.remaining() == 0) {
      if (moved_for_ != &m) {
        finish_reading(m);
        return nullptr;
      }
      // The copy thread may be waiting for this CPU.
      if (awaits_copy_thread() && !link_.others_have_something(slot_)) {
        std::this_thread::yield();
      }
      turn_to_next_reading();
      return nullptr;
    }
    if (!moved_for_ && may_move(m) && r.source.remaining() >= 2 * largest_slice) {
      start_moving(r);
    }
  }
  std::size_t count = 0;
  const char* const wrong =
      r.source.is_in_pools() ? read_pools(r, count) : read_memory(r, count);
  // Without a byte it was let go, comes another way from now on, or is looked for still.
  if (wrong || count == 0) return wrong;
  r.source.advance(count);
  const std::size_t left = r.source.remaining();
  m.target.advance(count);
  owner_.note_read(m, count);
  if (left == 0) {
    if (moved_for_ != &m) finish_reading(m);
    return nullptr;
  }
  if (left <= kept_awake) link_.note_reading();
  if (left <= wake_ahead && left + count > wake_ahead) link_.wake_peer();
  go_on_reading(m);
  return nullptr;
}

// A sender that gave it up says so in its turn, and one with a broken world says that.
void payload_reader::go_on_reading(inbound_message& m) {
  if (!link_.offers_in().still_offered(m.remote.ticket)) return let_go(m);
  turn_to_next_reading();
}

bool payload_reader::wants_help(const inbound_message& m) const noexcept {
  const bool is_of_a_size =
      m.payload_bytes >= least_helped && m.payload_bytes < least_moved;
  // Where several members receive at once their senders do so, too, or serve all.
  if (!is_of_a_size || !m.taker || m.taker->receivers > 1) return false;
  const bool is_in_one_place = m.remote.views == 0 && m.remote.pool == 0 &&
                               m.target.front(m.payload_bytes).size() == m.payload_bytes;
  // One that sleeps, or has no CPU of its own, would help too late.
  return is_in_one_place && core_.has_cpu_for_each && !link_.peer_sleeps() &&
         !owner_.is_backed_up();
}

void payload_reader::note_slice(inbound_message& m) {
  MW_ASSERT(m.is_read_too && m.asked, "a slice helps where one was asked for");
  m.awaits_slices = looks_for_slice;
  m.reads_next = first_helped;
  if (m.received == m.payload_bytes) finish_reading(m);
}

// The next slice stands in front of what was read before, in the peer and here.
const char* payload_reader::read_from_end(inbound_message& m) {
  MW_ASSERT(m.received < m.payload_bytes && m.from_end <= m.received,
            "something is missing of what is read");
  if (m.awaits_slices > 0) {
    // Beside what is read, or in a busy reactor, a look takes far longer than a slice.
    const bool is_early = core_.home.now() - m.last_progress < slice_comes_within;
    m.awaits_slices = is_early && awaits_slices() ? m.awaits_slices - 1 : 0;
    turn_to_next_reading();
    return nullptr;
  }
  if (!link_.memory()) {
    ask_instead(m);
    return nullptr;
  }
  const std::size_t count = std::min(m.payload_bytes - m.received, m.reads_next);
  m.reads_next = std::min(m.reads_next * 2, most_helped);
  const std::span<std::byte> place = m.target.front(m.target.remaining());
  MW_ASSERT(place.size() == m.payload_bytes - (m.received - m.from_end),
            "what no slice has brought has one place");
  const std::size_t behind = m.from_end + count;
  std::byte* const into = place.data() + place.size() - behind;
  const std::uintptr_t from = m.remote.address + m.payload_bytes - behind;
  // An interrupted read lacks its end, which counts first.
  for (std::size_t done = 0; done < count;) {
    const iovec here{into + done, count - done};
    const iovec there{reinterpret_cast<void*>(from + done), count - done};
    const ssize_t got = link_.memory()->read(std::span(&here, 1), std::span(&there, 1));
    if (got <= 0) return cannot_read(m, got < 0 ? errno : EFAULT);
    done += static_cast<std::size_t>(got);
  }
  m.from_end = behind;
  owner_.note_read(m, count);
  if (m.payload_bytes >= soon_read) link_.note_reading();
  if (m.received == m.payload_bytes) {
    finish_reading(m);
  } else {
    go_on_reading(m);
  }
  return nullptr;
}

bool payload_reader::awaits_slices() const noexcept {
  return !readings_.empty() &&
         std::all_of(readings_.begin(), readings_.end(), [](const reading& r) {
           return r.message->is_read_too && r.message->awaits_slices > 0;
         });
}

bool payload_reader::awaits_copy_thread() const noexcept {
  if (readings_.size() != 1 || moved_for_ != readings_.front().message) return false;
  const payload_cursor& source = readings_.front().source;
  return !source.is_in_pools() && source.remaining() == 0;
}

void payload_reader::turn_to_next_reading() {
  if (readings_.size() < 2) return;
  readings_.push_back(readings_.front());
  readings_.pop_front();
}

bool payload_reader::may_move(const inbound_message& m) const noexcept {
  if (m.payload_bytes < least_moved || !link_.copy_thread() ||
      !link_.copy_thread()->is_free()) {
    return false;
  }
  // Members that only send wait. What the others do outside a collective is unknown.
  const rank_t receivers = m.taker ? m.taker->receivers : 0;
  const rank_t threads = receivers > 0 ? 2 * receivers : core_.size;
  return threads <= link_.copy_thread()->cpus();
}

void payload_reader::start_moving(reading& r) {
  inbound_message& m = *r.message;
  MW_ASSERT(!moving_ && !moved_for_, "the copy thread has at most one job of a channel");
  auto job = std::make_shared<shm::copy_job>(*link_.memory());
  job->places = m.target.fill(job->here, std::min(r.source.remaining() / 2, largest_job));
  const std::size_t part = bytes_of(std::span<const iovec>(job->here).first(job->places));
  // The cursor shows one window of a list at a time; a job is as large as for one
  // piece.
  payload_cursor rest = r.source;
  for (unsigned windows = 0; windows < most_windows && job->bytes < part; ++windows) {
    if (job->pieces == job->there.size()) break;
    const auto free = std::span(job->there).subspan(job->pieces);
    int error = 0;
    const std::size_t pieces =
        rest.fill_from_memory(*link_.memory(), free, part - job->bytes, error);
    // The reading that comes to a wrong view reports it.
    if (pieces == 0) break;
    const std::size_t bytes = bytes_of(free.first(pieces));
    rest.advance(bytes);
    job->pieces += pieces;
    job->bytes += bytes;
  }
  MW_ASSERT(job->bytes <= part && job->pieces <= job->there.size(),
            "a job has a place for each byte that it reads");
  if (job->bytes == 0 || !link_.copy_thread()->start(job)) return;
  r.source = rest;
  m.target.advance(job->bytes);
  moving_ = std::move(job);
  moved_for_ = &m;
}

const char* payload_reader::collect_moved(inbound_message& m) {
  MW_ASSERT(moving_ && moved_for_ == &m, "what has moved belongs to its message");
  const std::shared_ptr<shm::copy_job> job = std::exchange(moving_, nullptr);
  moved_for_ = nullptr;
  if (job->error() != 0) return cannot_read(m, job->error());
  owner_.note_read(m, job->bytes);
  return nullptr;
}

void payload_reader::stop_moving() noexcept {
  if (moving_) moving_->end();
  moving_ = nullptr;
  moved_for_ = nullptr;
}

const char* payload_reader::read_memory(reading& r, std::size_t& count) {
  inbound_message& m = *r.message;
  std::array<iovec, pieces_at_once> from;
  int error = 0;
  const std::size_t pieces =
      r.source.fill_from_memory(*link_.memory(), from, slice_, error);
  // More empty views than a step looks at: it goes on with the next (law 9).
  if (pieces == 0 && error == EAGAIN) return nullptr;
  if (pieces == 0) return cannot_read(m, error);
  const auto there = std::span<const iovec>(from).first(pieces);
  std::array<iovec, pieces_at_once> into;
  const std::size_t places = m.target.fill(into, bytes_of(there));
  const bool is_measured = bytes_of(there) >= smallest_slice;
  const time_point before = is_measured ? core_.home.now() : time_point();
  // The sender has written the offer's line last, so it is fetched ahead.
  if (bytes_of(there) == r.source.remaining()) {
    link_.offers_in().expect_to_take(m.remote.ticket);
  }
  const ssize_t got = link_.memory()->read(std::span(into).first(places), there);
  if (got <= 0) return cannot_read(m, got < 0 ? errno : EFAULT);
  count = static_cast<std::size_t>(got);
  if (is_measured) fit_slice(count, core_.home.now() - before);
  return nullptr;
}

// An interrupted slice makes only the next one small.
void payload_reader::fit_slice(std::size_t bytes, duration took) noexcept {
  const auto parts = static_cast<std::size_t>(std::max(took, duration(1)).count());
  const std::size_t fits = bytes * static_cast<std::size_t>(slice_time.count()) / parts;
  slice_ =
      std::clamp(fits / smallest_slice * smallest_slice, smallest_slice, largest_slice);
}

const char* payload_reader::read_pools(reading& r, std::size_t& count) {
  inbound_message& m = *r.message;
  std::array<iovec, pieces_at_once> from;
  std::shared_ptr<shm::mapped_pool> held;
  const char* wrong = nullptr;
  const std::size_t pieces =
      r.source.fill_from_pools(link_.pools(), from, core_.options.slice, held, wrong);
  if (pieces == 0) {
    // A sender that gave up may have reused the memory since.
    if (!link_.offers_in().still_offered(m.remote.ticket)) {
      let_go(m);
    } else if (!wrong) {
      ask_instead(m);
    } else {
      return wrong;
    }
    return nullptr;
  }
  const auto there = std::span<const iovec>(from).first(pieces);
  view_cursor target = m.target;
  for (const iovec& piece : there) {
    copy_part(static_cast<const std::byte*>(piece.iov_base), piece.iov_len, target,
              m.payload_bytes);
  }
  count = bytes_of(there);
  return nullptr;
}

void payload_reader::finish_reading(inbound_message& m) {
  MW_ASSERT(moved_for_ != &m, "a payload is read when the copy thread has ended too");
  let_go(m);
  // If the sender gave up meanwhile, what was read may be anything. A peer that has not
  // died since owned its pid all the time.
  if (link_.offers_in().take(m.remote.ticket) && !link_.peer_has_died()) {
    owner_.note_whole(m);
  }
}

void payload_reader::ask_instead(inbound_message& m) {
  let_go(m);
  owner_.ask_for(m);
}

const char* payload_reader::cannot_read(inbound_message& m, int error) {
  switch (error) {
    case EPERM:
    case EACCES:
    case ENOSYS:
      // Our rights have changed since reading was probed.
      if (link_.stop_reading()) {
        core_.events.log(log_level::warning, "the memory of rank " +
                                                 std::to_string(peer_) + " " +
                                                 shm::unreadable_text(error));
      }
      ask_instead(m);
      return nullptr;
    case ESRCH:
      // Its link reports its death.
      let_go(m);
      return nullptr;
    default:
      // A sender that gave up may have freed the memory since, or the list of it.
      if (!link_.offers_in().still_offered(m.remote.ticket)) {
        let_go(m);
        return nullptr;
      }
      return error == 0 ? "an offer of less than it says"
                        : "an offer of memory that is not there";
  }
}

}  // namespace manyworlds::inline v0::detail::host
