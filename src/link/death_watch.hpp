// Death watch: learns from the kernel at once which peers on this host have died.
#pragma once

#include <linux/futex.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "io/reactor.hpp"
#include "link/death_notices.hpp"
#include "manyworlds/detail/member_work.hpp"

namespace manyworlds::inline v0::detail::shm {

class liveness_waiter;

/// Waits on the liveness futexes of peers and tells the service reactor which holder has
/// died without releasing its futex. It is the first of the notices, not the only one. A
/// peer that overwrites its futex affects only the notice of its own death.
///
/// Thread: each waiter has one for at most `futexes_per_thread` (futex_waitv takes 128),
/// and the next futex starts another one. Threads stay until the end; there is none
/// before the first futex. They inherit the signal mask of the caller of `add`.
///
/// All calls are made on the reactor's thread. Lifetime: destroyed before the reactor,
/// once that no longer turns, since a notice may be in its queue.
class death_watch final : public death_notices {
 public:
  using log_function = std::function<void(std::string)>;

  /// Names its threads `thread_name`, of which the system shows 15 characters. `log`
  /// receives lines for the log, on any of its threads.
  death_watch(reactor& home, std::string thread_name, log_function log);
  death_watch(const death_watch&) = delete;
  death_watch& operator=(const death_watch&) = delete;
  ~death_watch() override;

  /// Returns `none` where the kernel refuses waits for several futexes (futex_waitv:
  /// Linux 5.16) or a thread; that is logged.
  [[nodiscard]] ticket add(liveness_futex& futex, std::function<void()> died) override;
  /// Waits until the watching thread has noticed, some 50 us.
  void remove(ticket t) noexcept override;

  /// Returns how often futexes were polled, for tests that idle is free.
  [[nodiscard]] std::uint64_t polls() const noexcept;

  /// The system call takes 128; one of them is for changes of ours.
  static constexpr std::size_t futexes_per_thread = FUTEX_WAITV_MAX - 1;

 private:
  struct watched {
    liveness_waiter* where;
    std::function<void()> died;
  };

  [[nodiscard]] bool may_wait();
  /// Gives the futex to a waiter with room. Throws std::system_error.
  liveness_waiter& place(liveness_futex& futex, ticket t);
  void tell(ticket t) noexcept;
  void deliver() noexcept;

  reactor& home_;
  std::string thread_name_;
  log_function log_;
  bool asked_ = false;
  bool refused_ = false;
  std::uint64_t last_ticket_ = 0;
  std::map<ticket, watched> watched_;
  member_work<&death_watch::deliver> delivery_{*this};
  std::vector<ticket> delivering_;
  /// Guards what follows.
  std::mutex mutex_;
  std::vector<ticket> dead_;
  bool posted_ = false;
  /// Declared last, since its threads use the other members.
  std::vector<std::unique_ptr<liveness_waiter>> waiters_;
};

}  // namespace manyworlds::inline v0::detail::shm
