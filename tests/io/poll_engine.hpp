// Poll engine: an engine of one's own, over poll(2). The worked example of
// src/EXTENDING.md.
#pragma once

#include <poll.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <vector>

#include "io/descriptor.hpp"
#include "io/engine.hpp"
#include "io/file_reads.hpp"
#include "io/poll_budget.hpp"
#include "io/posix_network.hpp"
#include "io/request_list.hpp"
#include "io/system_environment.hpp"

namespace manyworlds::inline v0::detail {

/// Attempts a request in `poll`, and parks it on its descriptor while it would block.
/// Reads of files, which are always ready, are left to threads.
/// Each look costs a step for each descriptor that has a request parked on it.
class poll_engine final : public engine {
 public:
  std::string_view name() const noexcept override { return "poll"; }
  network& sockets() noexcept override { return posix_network(); }
  time_point now() const noexcept override { return std::chrono::steady_clock::now(); }

  void submit(io_request& r) noexcept override {
    if (r.kind == io_kind::read_at) return file_reads_.submit(r);
    const bool is_bulk = poll_budget::is_bulk(r);
    if (r.kind != io_kind::send || (is_bulk && sent_ >= poll_budget::bytes))
      return put(pending_, r, place::pending);
    // A send leaves now, since its sender may block the thread next.
    const io_result result = attempt(r);
    if (result.error() == EAGAIN) return park(r);
    if (is_bulk && result.ok()) sent_ += result.count();
    end_with(r, result);
  }

  void cancel(io_request& r) noexcept override {
    if (r.kind == io_kind::read_at) return file_reads_.cancel(r);
    switch (static_cast<place>(r.engine.token)) {
      case place::ended:
        return;
      case place::pending:
        pending_.remove(r);
        break;
      case place::parked:
        const auto at = parked_.find(key_of(r));
        at->second.remove(r);
        if (at->second.empty()) parked_.erase(at);
    }
    end_with(r, io_result::failure(ECANCELED));
  }

  bool poll() noexcept override {
    look(timespec{});
    sent_ = 0;
    bool any = false;
    const time_point until = now() + poll_budget::time;
    const io_request* const last_ended = ended_.back();
    for (std::size_t n = 0; n < poll_budget::requests && !ended_.empty(); ++n) {
      io_request& r = *ended_.pop();
      const bool is_last = &r == last_ended;
      r.ended(r);
      any = true;
      if (is_last || now() >= until) break;
    }
    for (std::size_t n = 0; n < poll_budget::requests && file_reads_.has_ended(); ++n) {
      io_request& r = *file_reads_.pop_ended();
      r.ended(r);
      any = true;
      if (now() >= until) break;
    }
    return attempt_pending(until) || any;
  }

  void wait(std::optional<time_point> until) noexcept override {
    if (has_something()) return;
    if (!until) return look(std::nullopt);
    const auto left = std::max(*until - now(), duration::zero());
    look(
        timespec{.tv_sec = static_cast<time_t>(left / std::chrono::seconds(1)),
                 .tv_nsec = static_cast<long>((left % std::chrono::seconds(1)).count())});
  }
  void wake() noexcept override { wake_.give(); }

  // poll(2) has no descriptor that stands for all others.
  int descriptor() noexcept override { return -1; }
  bool prepare_foreign_wait() noexcept override { return true; }

 private:
  enum class place : std::uint64_t { pending, parked, ended };
  /// A descriptor, and whether it is waited for to be writable.
  using key = std::pair<int, bool>;

  static key key_of(const io_request& r) noexcept {
    return {static_cast<int>(r.socket),
            r.kind == io_kind::send || r.kind == io_kind::connect};
  }
  bool has_something() const noexcept {
    return !pending_.empty() || !ended_.empty() || file_reads_.has_ended();
  }

  static void put(request_list& list, io_request& r, place where) noexcept {
    r.engine.token = static_cast<std::uint64_t>(where);
    list.push(r);
  }
  void end_with(io_request& r, io_result result) noexcept {
    r.result = result;
    put(ended_, r, place::ended);
  }
  void park(io_request& r) noexcept {
    try {
      asked_.reserve(parked_.size() + 2);
      put(parked_[key_of(r)], r, place::parked);
    } catch (const std::bad_alloc&) {
      end_with(r, io_result::failure(ENOMEM));
    }
  }

  /// What is submitted meanwhile waits for the next poll, and so does what would send or
  /// receive more than the budget (law 9).
  bool attempt_pending(time_point until) noexcept {
    bool any = false;
    std::size_t moved = 0;
    const io_request* const last = pending_.back();
    for (std::size_t n = 0; n < poll_budget::requests && !pending_.empty(); ++n) {
      io_request& r = *pending_.pop();
      const bool is_last = &r == last;
      const bool moves = r.kind == io_kind::receive || poll_budget::is_bulk(r);
      if (moves && moved >= poll_budget::bytes) {
        put(pending_, r, place::pending);
      } else if (const io_result result = attempt(r); result.error() == EAGAIN) {
        park(r);
      } else {
        if (moves && result.ok()) moved += result.count();
        r.result = result;
        r.ended(r);
        any = true;
      }
      if (is_last || now() >= until) break;
    }
    return any;
  }

  /// Asks the kernel which descriptors are ready. Without a limit, and with one above
  /// zero, it sleeps, and a wake-up ends that: only a sleep uses it up.
  void look(std::optional<timespec> limit) noexcept {
    const bool sleeps = !limit || limit->tv_sec > 0 || limit->tv_nsec > 0;
    if (!sleeps && parked_.empty()) return;
    asked_.clear();
    for (const auto& [at, list] : parked_)
      asked_.push_back({at.first, static_cast<short>(at.second ? POLLOUT : POLLIN), 0});
    asked_.push_back({wake_.fd(), static_cast<short>(sleeps ? POLLIN : 0), 0});
    if (::ppoll(asked_.data(), asked_.size(), limit ? &*limit : nullptr, nullptr) <= 0)
      return;
    auto at = parked_.begin();
    for (std::size_t n = 0; at != parked_.end(); ++n) {
      const auto here = at++;
      if (asked_[n].revents == 0) continue;
      while (io_request* r = here->second.pop()) put(pending_, *r, place::pending);
      parked_.erase(here);
    }
    if (sleeps && asked_.back().revents != 0) wake_.clear();
  }

  event_counter wake_;
  file_reads file_reads_{wake_};
  request_list pending_;  ///< to be attempted
  request_list ended_;    ///< to be told
  std::map<key, request_list> parked_;
  std::vector<pollfd> asked_ = std::vector<pollfd>(1);
  std::size_t sent_ = 0;  ///< in bulk, since the last poll
};

/// This machine, with another engine.
class poll_machine final : public system_environment {
 public:
  engine_choice make_engine(engine_kind) override {
    return {std::make_unique<poll_engine>(), {}};
  }
};

}  // namespace manyworlds::inline v0::detail
