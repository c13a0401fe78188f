#include "manyworlds/detail/config.hpp"

#if MANYWORLDS_HAS_IO_URING

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "io/engines.hpp"
#include "io/foreign_notice.hpp"
#include "io/kernel_ring.hpp"
#include "io/poll_budget.hpp"
#include "io/posix_network.hpp"
#include "io/request_list.hpp"
#include "io/submission.hpp"
#include "io/tried_receives.hpp"
#include "io/watched_wake.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// An engine by completion: the kernel performs a request and tells when it has ended.
/// Sends, and receives that a peer answers at once, are attempted first: the ring costs
/// more than a system call where there is nothing to wait for.
///
/// Only the request's own completion ends it. The answer to a cancellation is ignored,
/// since the target's completion may have been posted before it or may still come.
class io_uring_engine final : public engine {
 public:
  [[nodiscard]] int error() const noexcept { return ring_.error(); }

  ~io_uring_engine() override {
    // The kernel must not write into buffers after us. The requests may be gone with
    // their owners: they are counted, not looked at.
    ring_.stop_everything(in_flight_, wake_up);
  }

  std::string_view name() const noexcept override { return "io_uring"; }
  network& sockets() noexcept override { return posix_network(); }
  time_point now() const noexcept override { return std::chrono::steady_clock::now(); }

  void submit(io_request& r) noexcept override {
    MW_ASSERT(!r.engine.submitted, "a request is submitted again only after its end");
    r.engine.cancelled = false;
    r.engine.submitted = false;
    r.engine.token = operation;
    // A receive mostly finds nothing yet: what is sent in the same turn goes first.
    if (r.kind == io_kind::receive) return receives_.push(r);
    if (sent_ >= poll_budget::bytes && poll_budget::is_bulk(r)) {
      r.engine.token = held_back;
      return held_back_.push(r);
    }
    // A send leaves now: its sender may block the thread next. It still ends in the next
    // poll.
    if (r.kind == io_kind::send && attempt_send(r)) return;
    if (!backlog_.empty() || !start(r)) backlog_.push(r);
  }

  void cancel(io_request& r) noexcept override {
    if (std::exchange(r.engine.cancelled, true)) return;
    if (r.engine.token == held_back || r.engine.token == tried) {
      // A cancelled send does not wait for other sends' bulk, nor the next sleep for a
      // cancelled receive.
      r.engine.token == tried ? tried_.remove(r) : held_back_.remove(r);
      r.engine.token = operation;
      return backlog_.push(r);
    }
    // A request that has not started is found cancelled when its turn comes. Else its
    // cancellation follows it in the ring.
    if (r.engine.submitted && !start_cancel(r)) cancels_.push(r);
  }

  bool poll() noexcept override {
    ring_.enable();
    sent_ = 0;
    bool any = end_attempted();
    any |= start_waiting();
    any |= try_receives();
    if (io_uring_sq_ready(uring()) > 0) io_uring_submit_and_get_events(uring());
    any |= end_completed();
    // Sends that completions have led to leave together.
    if (io_uring_sq_ready(uring()) > 0) io_uring_submit(uring());
    return any;
  }

  void wait(std::optional<time_point> until) noexcept override {
    ring_.enable();
    if (wake_.take() || has_something()) return;
    start_tried();
    if (!backlog_.empty() || !watch_wake()) {
      // The kernel takes no entry now: a sleep would hear no wake-up.
      io_uring_submit_and_get_events(uring());
      return;
    }
    __kernel_timespec limit{};
    if (until) {
      const auto left = std::clamp(*until - now(), duration::zero(), longest_sleep);
      limit.tv_sec = left / std::chrono::seconds(1);
      limit.tv_nsec = (left % std::chrono::seconds(1)).count();
    }
    io_uring_cqe* first = nullptr;
    io_uring_submit_and_wait_timeout(uring(), &first, 1, until ? &limit : nullptr,
                                     nullptr);
    end_own();
    wake_.forget();
  }

  void wake() noexcept override { wake_.give(); }

  void release() noexcept override {
    if (!ring_.is_enabled()) return;
    is_released_ = true;
    // What the kernel gives back is started again after `take`.
    const time_point until = now() + longest_release;
    __kernel_timespec limit{1, 0};
    while ((in_flight_ > 0 || wake_.is_watched()) && now() < until) {
      ring_.cancel_everything(ignored);
      io_uring_cqe* first = nullptr;
      const int got =
          io_uring_submit_and_wait_timeout(uring(), &first, 1, &limit, nullptr);
      if (got < 0 && got != -EINTR) return;
      end_completed();
    }
  }

  void take(next_poller by) override {
    const bool stays =
        !ring_.is_enabled() || (by == next_poller::this_thread && ring_.is_ours());
    if (!stays) {
      if (in_flight_ > 0 || wake_.is_watched())
        throw std::logic_error("requests are under way on another thread");
      if (const int error = ring_.renew(); error != 0)
        throw std::system_error(error, std::generic_category(), "io_uring_queue_init");
    }
    if (foreign_) {
      const int error = -io_uring_register_eventfd(uring(), foreign_->completions());
      // EBUSY: it is registered.
      if (error != 0 && error != EBUSY)
        throw std::system_error(error, std::generic_category(), "io_uring_register");
    }
    is_released_ = false;
  }

  int descriptor() noexcept override {
    if (!foreign_) {
      try {
        foreign_.emplace(wake_.fd());
      } catch (const std::system_error&) {
        return -1;
      }
      // A ring that is released may be another thread's.
      if (!is_released_ &&
          io_uring_register_eventfd(uring(), foreign_->completions()) != 0)
        foreign_.reset();
    }
    return foreign_ ? foreign_->fd() : -1;
  }

  bool prepare_foreign_wait() noexcept override {
    ring_.enable();
    // This is cleared before the look: what comes after the look gives a notice that
    // stays.
    if (foreign_) foreign_->clear();
    wake_.poll();
    start_tried();
    io_uring_submit_and_get_events(uring());
    return wake_.take() || has_something();
  }

 private:
  // The meanings of a request's `token` and of a completion's user data. A request's user
  // data is its address, which is never one of these.
  enum tokens : std::uint64_t { operation, readiness, held_back, tried };
  static constexpr std::uint64_t ignored = 1;
  static constexpr std::uint64_t wake_up = 2;  ///< the largest of them
  static_assert(ignored < wake_up && wake_up < alignof(io_request),
                "a request's address is above the engine's own user data");
  // The kernel adds its own clock to the limit, and the end of time would wrap around.
  static constexpr duration longest_sleep = std::chrono::hours(24);

  /// How long the kernel may take to give requests back. Those on sockets take none.
  static constexpr duration longest_release = std::chrono::seconds(1);

  io_uring* uring() noexcept { return ring_.get(); }
  static std::uint64_t user_data_of(io_request& r) noexcept {
    return reinterpret_cast<std::uintptr_t>(&r);
  }

  bool has_something() noexcept {
    return !backlog_.empty() || !held_back_.empty() || !receives_.empty() ||
           !attempted_.empty() || !cancels_.empty() || io_uring_cq_ready(uring()) > 0;
  }

  /// Returns a free submission entry, or null if the kernel takes none now.
  io_uring_sqe* entry() noexcept {
    if (is_released_) return nullptr;
    io_uring_sqe* sqe = io_uring_get_sqe(uring());
    if (sqe || !ring_.is_enabled()) return sqe;
    io_uring_submit(uring());
    return io_uring_get_sqe(uring());
  }

  bool start(io_request& r) noexcept {
    MW_ASSERT(!r.engine.submitted, "a request is in the ring once at a time");
    io_uring_sqe* sqe = entry();
    if (!sqe) return false;
    if (r.engine.token == operation && poll_budget::is_bulk(r)) sent_ += bytes_of(r);
    if (r.engine.token == readiness) {
      prepare_readiness(*sqe, r);
    } else {
      prepare_operation(*sqe, r);
    }
    if (foreign_ && r.kind == io_kind::readable)
      foreign_->watch(static_cast<int>(r.socket));
    io_uring_sqe_set_data64(sqe, user_data_of(r));
    r.engine.submitted = true;
    ++in_flight_;
    return true;
  }

  /// Queues a cancellation. The kernel takes entries in their order: it finds its target
  /// started, and never a later request at the same address.
  bool start_cancel(io_request& r) noexcept {
    io_uring_sqe* sqe = entry();
    if (!sqe) return false;
    io_uring_prep_cancel64(sqe, user_data_of(r), 0);
    io_uring_sqe_set_data64(sqe, ignored);
    return true;
  }

  bool start_waiting() noexcept {
    while (io_request* r = cancels_.front()) {
      if (!start_cancel(*r)) break;
      cancels_.remove(*r);
    }
    const bool any = start_some(backlog_);
    start_held_back();
    return any;
  }

  /// Returns true if the send has its result.
  bool attempt_send(io_request& r) noexcept {
    if (!ring_.is_enabled() || is_released_) return false;
    const io_result result = attempt(r);
    if (result.error() == EAGAIN) return false;
    if (poll_budget::is_bulk(r) && result.ok()) sent_ += result.count();
    r.result = result;
    attempted_.push(r);
    return true;
  }

  /// Ends the sends that were attempted since. The end of one that is attempted
  /// meanwhile is told in the next poll.
  bool end_attempted() noexcept {
    const io_request* const last = attempted_.back();
    poll_limit limit(*this);
    while (!attempted_.empty() && !limit.is_reached()) {
      io_request& r = *attempted_.pop();
      const bool is_last = &r == last;
      end(r, r.result);
      if (is_last) break;
    }
    return last != nullptr;
  }

  /// Attempts the receives that were submitted since, and those that are tried. What is
  /// submitted meanwhile waits for the next poll, behind the answers to what came.
  bool try_receives() noexcept {
    if (is_released_ || (receives_.empty() && tried_.empty())) return false;
    bool any = false;
    std::size_t received = 0;
    poll_limit limit(*this);
    std::size_t tried_before = tried_.size();
    const io_request* const newest = receives_.back();
    // The few that were tried before go first: a stream that is always full would use up
    // what a poll may receive (law 9).
    for (; tried_before > 0 && !limit.is_reached(received); --tried_before) {
      // The end of one may have cancelled another.
      if (io_request* const r = tried_.pop()) any |= try_once(*r, received);
    }
    while (!receives_.empty() && !limit.is_reached(received)) {
      io_request& r = *receives_.pop();
      const bool is_newest = &r == newest;
      r.engine.tries = 0;
      any |= try_once(r, received);
      if (is_newest) break;
    }
    return any;
  }

  /// Returns true if it has ended.
  bool try_once(io_request& r, std::size_t& received) noexcept {
    r.engine.token = operation;
    if (r.engine.cancelled) return end(r, io_result::failure(ECANCELED));
    const io_result result = attempt(r);
    if (result.error() != EAGAIN) {
      if (result.ok()) received += result.count();
      return end(r, result);
    }
    if (tried_.keep(r)) {
      r.engine.token = tried;
    } else if (!start(r)) {
      backlog_.push(r);
    }
    return false;
  }

  /// Before a sleep: from here on the kernel waits.
  void start_tried() noexcept {
    while (io_request* r = tried_.pop()) {
      r->engine.token = operation;
      if (!start(*r)) backlog_.push(*r);
    }
  }

  bool start_some(request_list& waiting) noexcept {
    bool any = false;
    for (std::size_t n = 0; n < poll_budget::requests && !waiting.empty(); ++n) {
      io_request& r = *waiting.front();
      if (!r.engine.cancelled && !start(r)) break;
      waiting.remove(r);
      if (!r.engine.cancelled) continue;
      end(r, io_result::failure(ECANCELED));
      any = true;
    }
    return any;
  }

  void start_held_back() noexcept {
    while (io_request* r = held_back_.front()) {
      if (sent_ >= poll_budget::bytes) return;
      held_back_.remove(*r);
      r->engine.token = operation;
      if (!start(*r)) return backlog_.push(*r);
    }
  }

  bool end_completed() noexcept {
    bool any = false;
    io_uring_cqe* cqe = nullptr;
    // Enters the kernel only if a flag in user memory says that it has something.
    for (poll_limit limit(*this); io_uring_peek_cqe(uring(), &cqe) == 0;) {
      if (limit.is_reached()) break;
      const std::uint64_t data = cqe->user_data;
      const int result = cqe->res;
      io_uring_cqe_seen(uring(), cqe);
      if (data == ignored) continue;
      if (data == wake_up) {
        wake_.note();
        continue;
      }
      MW_ASSERT(in_flight_ > 0 && data > wake_up, "each request completes once (law 1)");
      --in_flight_;
      any |= completed(*reinterpret_cast<io_request*>(data), result);
    }
    return any;
  }

  /// Uses up a wake-up without touching requests: `wait` ends none.
  void end_own() noexcept {
    io_uring_cqe* cqe = nullptr;
    while (io_uring_cq_ready(uring()) > 0 && io_uring_peek_cqe(uring(), &cqe) == 0) {
      if (cqe->user_data != wake_up && cqe->user_data != ignored) return;
      if (cqe->user_data == wake_up) wake_.note();
      io_uring_cqe_seen(uring(), cqe);
    }
  }

  bool completed(io_request& r, int kernel_result) noexcept {
    MW_ASSERT(r.engine.submitted, "only a request in the ring completes");
    if (foreign_ && r.kind == io_kind::readable)
      foreign_->unwatch(static_cast<int>(r.socket));
    const io_result result = io_result::from_kernel(kernel_result);
    const int error = result.error();
    if (r.engine.cancelled) {
      // A cancelled operation of a kernel worker answers that it was interrupted.
      const bool stopped = error == EINTR || error == EAGAIN || error == EINPROGRESS ||
                           error == ECONNABORTED;
      return end(r, stopped ? io_result::failure(ECANCELED)
                            : value_of(r, result, r.engine.token == readiness));
    }
    // A socket that connects already is waited for.
    if (error == ECANCELED && is_released_)
      return start_again(r, r.kind == io_kind::connect ? readiness : r.engine.token);
    const bool readiness_known = r.engine.token == readiness && result.ok();
    if (readiness_known && r.kind == io_kind::connect) return finish_connect(r);
    if (readiness_known || error == EINTR ||
        (error == ECONNABORTED && r.kind == io_kind::accept)) {
      return start_again(r, operation);
    }
    // Some kernels answer a non-blocking descriptor at once instead of waiting for it.
    if (error == EAGAIN || error == EINPROGRESS) return start_again(r, readiness);
    return end(r, value_of(r, result, r.engine.token == readiness));
  }

  bool finish_connect(io_request& r) noexcept {
    const io_result result = attempt(r);
    return result.error() == EAGAIN ? start_again(r, readiness) : end(r, result);
  }

  bool start_again(io_request& r, std::uint64_t as) noexcept {
    r.engine.token = as;
    r.engine.submitted = false;
    if (!start(r)) backlog_.push(r);
    return false;
  }

  bool end(io_request& r, io_result result) noexcept {
    if (r.engine.cancelled && cancels_.holds(r)) cancels_.remove(r);
    r.engine.submitted = false;
    r.result = result;
    r.ended(r);
    return true;
  }

  bool watch_wake() noexcept {
    if (wake_.is_watched()) return true;
    io_uring_sqe* sqe = entry();
    if (!sqe) return false;
    wake_.watch(*sqe);
    io_uring_sqe_set_data64(sqe, wake_up);
    return true;
  }

  kernel_ring ring_;
  watched_wake wake_;
  std::optional<foreign_notice> foreign_;
  request_list backlog_;
  /// The bulk sends that wait for the next poll.
  request_list held_back_;
  request_list receives_;
  request_list cancels_;
  request_list attempted_;  ///< sends that have their results
  tried_receives tried_;
  std::size_t in_flight_ = 0;
  std::size_t sent_ = 0;
  bool is_released_ = false;  ///< nothing is started until the next `take`
};

}  // namespace

std::unique_ptr<engine> make_io_uring_engine(int& refusal) {
  auto made = std::make_unique<io_uring_engine>();
  refusal = made->error();
  if (refusal == 0) return made;
  // This is no refusal: another engine would fail next, and less clearly.
  if (refusal == EMFILE || refusal == ENFILE) {
    throw std::system_error(refusal, std::generic_category(), "io_uring_queue_init");
  }
  return nullptr;
}

}  // namespace manyworlds::inline v0::detail

#endif
