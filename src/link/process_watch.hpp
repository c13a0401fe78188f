// Process watch: the end of the process behind a Unix connection, told by its pidfd.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/io/reactor.hpp"

namespace manyworlds::inline v0::shm {

/// Time since the machine was started, as in which the kernel tells when processes were.
using boot_time = std::chrono::nanoseconds;
[[nodiscard]] boot_time boot_time_now() noexcept;

/// The last of the notices that a peer is dead: it comes after the peer's memory and
/// descriptors are gone, but nobody can hold it back, and a process that got the same
/// number since is not taken for it.
class process_watch {
 public:
  /// The process that made the other end of a connected Unix socket, or that listened for
  /// it. `met`: the connection was there already then. Where the kernel does not name the
  /// process by a descriptor (SO_PEERPIDFD: Linux 6.5), its number is believed only if
  /// the process with it is not younger than that.
  [[nodiscard]] static process_watch of_peer(int connection, boot_time met);
  /// As `of_peer`, by the number alone.
  [[nodiscard]] static process_watch of_peer_by_number(int connection, boot_time met);

  process_watch(process_watch&& other) noexcept;
  process_watch& operator=(process_watch&&) = delete;
  ~process_watch();

  /// There is something to wait for, or it has ended already.
  [[nodiscard]] bool is_watching() const noexcept { return state_ != state::blind; }
  /// If not, why: a line for the log. The other notices remain.
  [[nodiscard]] const std::string& objection() const noexcept { return objection_; }
  /// Looks, without waiting. False where nothing is known.
  [[nodiscard]] bool has_ended() const noexcept;

  /// Awaits the end, on the service reactor; must not outlive this object. Not where
  /// nothing is known.
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
  int descriptor_ = -1;
  std::string objection_;
};

}  // namespace manyworlds::inline v0::shm
