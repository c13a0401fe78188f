// Process watch: reports the end of the process behind a Unix connection, by its pidfd.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "io/descriptor.hpp"
#include "io/reactor.hpp"
#include "manyworlds/coro/task.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Time since the machine was started, in which the kernel gives the start of
/// processes.
using boot_time = std::chrono::nanoseconds;
[[nodiscard]] boot_time boot_time_now() noexcept;

/// Watches a process. This is the last of the notices that a peer is dead: it comes
/// after the peer's memory and descriptors are gone. But no process can delay it, and a
/// later process with the same number is not mistaken for the peer.
class process_watch {
 public:
  /// Watches the process that made the other end of a connected Unix socket, or that
  /// listened for it. `met` is a time at which the connection existed. Where the kernel
  /// gives no descriptor of the process (SO_PEERPIDFD: Linux 6.5), its number is
  /// trusted only if that process started before `met`.
  [[nodiscard]] static process_watch of_peer(int connection, boot_time met);
  /// Works as `of_peer`, by the number alone.
  [[nodiscard]] static process_watch of_peer_by_number(int connection, boot_time met);

  process_watch(process_watch&&) noexcept = default;
  process_watch& operator=(process_watch&&) = delete;
  ~process_watch() = default;

  /// Says that the end can be awaited, or has come already.
  [[nodiscard]] bool is_watching() const noexcept { return state_ != state::blind; }
  /// Returns a line for the log that says why it is not watching. The other notices
  /// remain.
  [[nodiscard]] const std::string& error_message() const noexcept {
    return error_message_;
  }
  /// Says without waiting whether the process has ended; false where nothing is known.
  [[nodiscard]] bool has_ended() const noexcept;

  /// Awaits the end. Thread: the service reactor. Lifetime: the task must not outlive
  /// this object. Precondition: is_watching().
  [[nodiscard]] task<void> ended(reactor& service) const;

 private:
  enum class state : unsigned char { watching, ended, blind };
  explicit process_watch(state s) noexcept : state_(s) {}
  [[nodiscard]] static process_watch with(int descriptor) noexcept;
  [[nodiscard]] static process_watch blind(std::string why);
  [[nodiscard]] static process_watch over() noexcept {
    return process_watch(state::ended);
  }
  [[nodiscard]] static process_watch of_number(pid_t number, int connection,
                                               boot_time met);

  state state_;
  unique_descriptor descriptor_;
  std::string error_message_;
};

}  // namespace manyworlds::inline v0::detail::shm
