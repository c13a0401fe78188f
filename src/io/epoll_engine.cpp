#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <ctime>
#include <vector>

#include "io/descriptor.hpp"
#include "io/engines.hpp"
#include "io/file_reads.hpp"
#include "io/poll_budget.hpp"
#include "io/posix_network.hpp"
#include "io/request_list.hpp"
#include "io/tried_receives.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// An engine by readiness: a request is attempted in `poll`, parked on its descriptor if
/// it would block, and attempted again when epoll says so.
///
/// Sockets are closed through `network`, without telling the engine, and their numbers
/// come back at once. So the engine assumes nothing about the kernel's interest in a
/// descriptor on which no request is parked. Interest is one-shot, and readiness is never
/// more than a hint to attempt again.
class epoll_engine final : public engine {
 public:
  epoll_engine() : epoll_(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1") {
    epoll_event interest{};
    interest.events = EPOLLIN;
    interest.data.fd = wake_.fd();
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.fd(), &interest) != 0) {
      throw std::system_error(errno, std::generic_category(), "epoll_ctl");
    }
  }

  std::string_view name() const noexcept override { return "epoll"; }
  network& sockets() noexcept override { return posix_network(); }
  time_point now() const noexcept override { return std::chrono::steady_clock::now(); }

  void submit(io_request& r) noexcept override {
    r.engine.cancelled = false;
    r.engine.tries = 0;
    if (r.kind == io_kind::read_at) return file_reads_.submit(r);
    if (r.kind != io_kind::send) return put(r, place::pending);
    const bool is_bulk = poll_budget::is_bulk(r);
    if (is_bulk && sent_ >= poll_budget::bytes) return put(r, place::held_back);
    // A send leaves now: its sender may block the thread next. It still ends in the next
    // poll.
    const io_result result = attempt(r);
    if (result.error() == EAGAIN) return park(r);
    if (is_bulk && result.ok()) sent_ += result.count();
    end_with(r, result);
  }

  void cancel(io_request& r) noexcept override {
    if (r.kind == io_kind::read_at) return file_reads_.cancel(r);
    if (place_of(r) == place::ended) return;
    take_out(r);
    end_with(r, io_result::failure(ECANCELED));
  }

  bool poll() noexcept override {
    if (parked_ > 0 && ready_ == 0) fetch({});
    release_ready();
    sent_ = 0;
    // Requests that waited for this poll go before those that the end of a send submits.
    // A receive mostly finds nothing yet, so what is sent in the same turn goes first.
    std::size_t uncounted = 0;
    bool any = attempt_some(pending_, uncounted);
    any |= attempt_some(held_back_, sent_);
    any |= end_some();
    any |= end_file_reads();
    std::size_t received = 0;
    const std::size_t tried_before = tried_.size();
    // The few that were tried before go first: a stream that is always full would use up
    // what a poll may receive (law 9).
    any |= try_again(tried_before, received);
    any |= attempt_some(receives_, received);
    return any;
  }

  void wait(std::optional<time_point> until) noexcept override {
    if (has_something()) return;
    if (!park_tried()) return;
    timespec relative{};
    timespec* limit = nullptr;
    if (until) {
      const auto left = std::max(*until - now(), duration::zero());
      relative.tv_sec = static_cast<time_t>(left / std::chrono::seconds(1));
      relative.tv_nsec = static_cast<long>((left % std::chrono::seconds(1)).count());
      limit = &relative;
    }
    // Only a wait uses up a wake-up: one that comes between two waits must end the later.
    if (fetch_for(limit)) wake_.clear();
  }

  void wake() noexcept override { wake_.give(); }

  int descriptor() noexcept override { return epoll_.get(); }

  bool prepare_foreign_wait() noexcept override {
    const bool woken = wake_.clear();
    // All that makes the set readable must be taken out of it, or the foreign loop would
    // not sleep. It may be the interest of a request that has ended.
    (void)park_tried();
    if (ready_ == 0) fetch({});
    return woken || has_something();
  }

 private:
  enum class place : std::uint64_t {
    nowhere,
    pending,
    held_back,
    tried,
    reading,
    writing,
    ended
  };

  /// The requests parked on a descriptor, and what the kernel was last told to watch for.
  struct parking {
    request_list reading;
    request_list writing;
    std::uint32_t interest = 0;

    [[nodiscard]] std::uint32_t wanted() const noexcept {
      return (reading.empty() ? 0u : EPOLLIN | EPOLLRDHUP) |
             (writing.empty() ? 0u : EPOLLOUT);
    }
  };

  static place place_of(const io_request& r) noexcept {
    return static_cast<place>(r.engine.token);
  }
  static std::size_t slot_of(const io_request& r) noexcept {
    return static_cast<std::size_t>(r.socket);
  }
  static bool writes(const io_request& r) noexcept {
    return r.kind == io_kind::send || r.kind == io_kind::connect;
  }

  bool has_something() const noexcept {
    return ready_ > 0 || !pending_.empty() || !held_back_.empty() || !receives_.empty() ||
           !ended_.empty() || file_reads_.has_ended();
  }

  request_list& list_of(const io_request& r, place p) noexcept {
    switch (p) {
      case place::reading:
        MW_ASSERT(slot_of(r) < parked_on_.size(), "a parked request has its place");
        return parked_on_[slot_of(r)].reading;
      case place::writing:
        MW_ASSERT(slot_of(r) < parked_on_.size(), "a parked request has its place");
        return parked_on_[slot_of(r)].writing;
      case place::held_back:
        return held_back_;
      case place::ended:
        return ended_;
      default:
        return r.kind == io_kind::receive ? receives_ : pending_;
    }
  }

  void put(io_request& r, place p) noexcept {
    r.engine.token = static_cast<std::uint64_t>(p);
    list_of(r, p).push(r);
    if (p == place::reading || p == place::writing) ++parked_;
  }

  void take_out(io_request& r) noexcept {
    const place p = place_of(r);
    MW_ASSERT(p != place::nowhere, "only a request that is somewhere is taken out");
    p == place::tried ? tried_.remove(r) : list_of(r, p).remove(r);
    r.engine.token = static_cast<std::uint64_t>(place::nowhere);
    if (p != place::reading && p != place::writing) return;
    MW_ASSERT(parked_ > 0, "each parked request is counted");
    --parked_;
    parking& here = parked_on_[slot_of(r)];
    if (here.wanted() != 0) return;
    // Before anything parks here again, the descriptor may be closed and its number may
    // belong to another socket.
    here.interest = 0;
    epoll_event none{};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, static_cast<int>(slot_of(r)), &none);
  }

  void end_with(io_request& r, io_result result) noexcept {
    r.result = result;
    put(r, place::ended);
  }

  /// Ends what has ended since. A send that is submitted here leaves at once, and its end
  /// is reported in the next turn.
  bool end_some() noexcept {
    const io_request* const last = ended_.back();
    poll_limit limit(*this);
    while (!ended_.empty() && !limit.is_reached()) {
      io_request& r = *ended_.pop();
      const bool is_last = &r == last;
      r.ended(r);
      if (is_last) break;
    }
    return last != nullptr;
  }

  bool end_file_reads() noexcept {
    bool any = false;
    for (poll_limit limit(*this); file_reads_.has_ended() && !limit.is_reached();) {
      io_request& r = *file_reads_.pop_ended();
      r.ended(r);
      any = true;
    }
    return any;
  }

  /// Attempts what waits. What is submitted meanwhile waits for the next turn: the next
  /// receive behind the answer to the last, and a sender without pause behind all others.
  bool attempt_some(request_list& waiting, std::size_t& moved) noexcept {
    bool any = false;
    const io_request* const last = waiting.back();
    poll_limit limit(*this);
    while (!waiting.empty() && !limit.is_reached(moved)) {
      io_request& r = *waiting.pop();
      const bool is_last = &r == last;
      any |= attempt_one(r, moved);
      if (is_last) break;
    }
    return any;
  }

  /// Attempts as many of the receives that are tried.
  bool try_again(std::size_t count, std::size_t& received) noexcept {
    bool any = false;
    poll_limit limit(*this);
    for (; count > 0 && !limit.is_reached(received); --count) {
      // The end of one may have cancelled another.
      if (io_request* const r = tried_.pop()) any |= attempt_one(*r, received);
    }
    return any;
  }

  /// Returns true if it has ended.
  bool attempt_one(io_request& r, std::size_t& moved) noexcept {
    const io_result result = attempt(r);
    if (result.error() == EAGAIN) {
      if (r.kind == io_kind::receive && tried_.keep(r)) {
        r.engine.token = static_cast<std::uint64_t>(place::tried);
      } else {
        park(r);
      }
      return false;
    }
    const bool has_bytes = r.kind == io_kind::receive || place_of(r) == place::held_back;
    if (has_bytes && result.ok()) moved += result.count();
    r.result = result;
    r.ended(r);
    return true;
  }

  /// Before a sleep: from here on the kernel waits. Returns false if a receive has ended
  /// instead.
  bool park_tried() noexcept {
    while (io_request* r = tried_.pop()) park(*r);
    return ended_.empty();
  }

  void park(io_request& r) noexcept {
    const std::size_t slot = slot_of(r);
    try {
      if (slot >= parked_on_.size()) parked_on_.resize(slot + 1);
    } catch (const std::bad_alloc&) {
      return end_with(r, io_result::failure(ENOMEM));
    }
    put(r, writes(r) ? place::writing : place::reading);
    if (const int error = watch(slot)) {
      take_out(r);
      end_with(r, io_result::failure(error));
    }
  }

  /// Tells the kernel what is wanted of a descriptor. Returns the errno, or 0.
  int watch(std::size_t slot) noexcept {
    parking& here = parked_on_[slot];
    const std::uint32_t wanted = here.wanted();
    if (wanted == here.interest) return 0;
    epoll_event interest{};
    interest.events = wanted | EPOLLONESHOT;
    interest.data.fd = static_cast<int>(slot);
    // The kernel does not know the descriptor if it was closed meanwhile.
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, interest.data.fd, &interest) != 0) {
      if (errno != ENOENT) return errno;
      if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, interest.data.fd, &interest) != 0) {
        return errno;
      }
    }
    here.interest = wanted;
    return 0;
  }

  /// Moves the requests that epoll says are ready back to the pending ones.
  void release_ready() noexcept {
    MW_ASSERT(ready_ <= events_.size(), "epoll gives no more events than there is room");
    for (std::size_t n = 0; n < ready_; ++n) release_parked(events_[n]);
    ready_ = 0;
  }

  void release_parked(const epoll_event& event) noexcept {
    const auto slot = static_cast<std::size_t>(event.data.fd);
    if (event.data.fd == wake_.fd() || slot >= parked_on_.size()) return;
    parking& here = parked_on_[slot];
    here.interest = 0;
    constexpr std::uint32_t both = EPOLLERR | EPOLLHUP;
    if (event.events & (EPOLLIN | EPOLLRDHUP | both)) release_all(here.reading);
    if (event.events & (EPOLLOUT | both)) release_all(here.writing);
    if (here.wanted() == 0) return;
    if (watch(slot) != 0) {
      release_all(here.reading);
      release_all(here.writing);
    }
  }

  void release_all(request_list& parked) noexcept {
    while (io_request* r = parked.pop()) {
      MW_ASSERT(parked_ > 0, "each parked request is counted");
      --parked_;
      put(*r, poll_budget::is_bulk(*r) ? place::held_back : place::pending);
    }
  }

  /// Asks epoll what is ready. Returns true if a wake-up was among it.
  bool fetch_for(const timespec* limit) noexcept {
    int count = ::epoll_pwait2(epoll_.get(), events_.data(), poll_budget::requests, limit,
                               nullptr);
    // The call is missing before Linux 5.11; older seccomp filters answer EPERM.
    if (count < 0 && errno != EINTR) {
      count = ::epoll_wait(epoll_.get(), events_.data(), poll_budget::requests,
                           in_milliseconds(limit));
    }
    ready_ = count > 0 ? static_cast<std::size_t>(count) : 0;
    return std::any_of(events_.begin(),
                       events_.begin() + static_cast<std::ptrdiff_t>(ready_),
                       [this](const epoll_event& e) { return e.data.fd == wake_.fd(); });
  }

  void fetch(timespec limit) noexcept { fetch_for(&limit); }

  static int in_milliseconds(const timespec* limit) noexcept {
    if (!limit) return -1;
    const long long ms = static_cast<long long>(limit->tv_sec) * 1000 +
                         (limit->tv_nsec + 999'999) / 1'000'000;
    return static_cast<int>(std::min<long long>(ms, INT_MAX));
  }

  unique_descriptor epoll_;
  event_counter wake_;
  file_reads file_reads_{wake_};
  request_list pending_;
  request_list held_back_;
  request_list receives_;
  request_list ended_;
  tried_receives tried_;
  std::vector<parking> parked_on_;
  std::size_t parked_ = 0;
  std::size_t sent_ = 0;
  std::array<epoll_event, poll_budget::requests> events_{};
  std::size_t ready_ = 0;
};

}  // namespace

std::unique_ptr<engine> make_epoll_engine() { return std::make_unique<epoll_engine>(); }

}  // namespace manyworlds::inline v0::detail
