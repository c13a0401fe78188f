// Guard connection: what a starter tells its guard.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <string_view>

#include "io/descriptor.hpp"
#include "io/process_host.hpp"
#include "io/reactor.hpp"
#include "manyworlds/coro/task.hpp"

namespace manyworlds::inline v0::detail {

/// Tells the guard of trees that begin and end. The guard acts when the connection ends,
/// as it does with this process. Thread: any.
class guard_connection final : public tree_listener {
 public:
  /// Forks a guard. Errors: those of `process_guard`.
  guard_connection();
  /// Uses the parent of this process, which reads at the other end of the socket. It ends
  /// what is left when this process has ended.
  guard_connection(unique_descriptor socket, pid_t guard) noexcept;
  guard_connection(const guard_connection&) = delete;
  guard_connection& operator=(const guard_connection&) = delete;
  /// Lets a guard that was forked end what is left, and waits for it.
  ~guard_connection();

  /// Errors: std::system_error if the guard is gone, or, where it is no parent, does not
  /// take it within 1 s.
  void tree_begins(const tree_mark& mark) override;
  void tree_has_ended(const tree_mark& mark) noexcept override;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// Ends when the guard has ended.
  [[nodiscard]] task<void> ended(reactor& home) const;

 private:
  [[nodiscard]] bool tell(char what, const tree_mark& mark, int flags) noexcept;

  std::mutex mutex_;
  unique_descriptor socket_;
  pid_t pid_ = 0;
  const bool is_parent_ = false;
};

}  // namespace manyworlds::inline v0::detail
