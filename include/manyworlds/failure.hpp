// Failure: what went wrong, where, at which member, and how long it took to notice.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/address.hpp"
#include "manyworlds/detail/config.hpp"
#include "manyworlds/inline_text.hpp"
#include "manyworlds/time.hpp"

namespace manyworlds::inline v0 {

/// Names a process in errors and dumps. It is never trusted.
struct process_identity {
  std::int64_t pid = 0;
  inline_text<63> host;  ///< cut if it is longer
};

/// Why an operation or a world failed. The first group breaks the world; the second
/// ends one operation and leaves the world up; the third ends the forming of a world.
///
/// Behind `Errors:` each operation lists the causes that it can end with. Sets that many
/// operations share have names: see `world` and `device_calls`.
enum class cause : std::uint8_t {
  none,
  // The world is broken.
  peer_died,         ///< the peer process ended, or the link to it did: by its end, a
                     ///< reset or a timeout of the network, which `detail` tells
  silent_peer,       ///< the peer process was silent for the world's silence limit
  connection_lost,   ///< the world's connection to the peer ended while the link to the
                     ///< process went on, or the peer has made a new link
  replaced,          ///< another process took the rank of a dead or silent member
  abandoned,         ///< a member dropped its last handle without leaving
  stalled,           ///< a begun transfer made no progress
  overdue,           ///< members did not enter a collective in time, or a deadline cut it
  mismatch,          ///< members disagree on what they do together
  protocol_error,    ///< a peer sent what the protocol does not allow
  out_of_resources,  ///< memory or descriptors were exhausted
  broken_by_user,    ///< `fail()` was called, here or at another member
  runtime_stopped,   ///< the runtime of a member ended
  not_turned,        ///< a member's reactor was not turned until its time to form was up
  device_failed,     ///< the GPU, or the driver's state of it, is unusable to the process
  nccl_failed,       ///< NCCL gave an error
  forked,            ///< used in a forked child

  // The world stays as it is.
  closed,             ///< this member, or the peer, has left
  not_formed,         ///< the world was not awaited yet
  cancelled,          ///< the stop token given to `.stop`; see also `stopped`
  timed_out,          ///< the time given to `.within`; see also the exception
  cancelled_by_peer,  ///< the sender gave up a message that was being received
  size_mismatch,     ///< the buffer and the message differ in bytes; the message stays at
                     ///< the head
  type_mismatch,     ///< element types differ; the message stays at the head
  memory_mismatch,   ///< one of buffer and message lies in device memory; the message
                     ///< stays
  buffers_lost,      ///< the world is broken and its stream does not drain: the buffers
                     ///< may still be touched and must not be reused
  invalid_argument,  ///< names what is wrong; nothing was started
  unsupported,       ///< this build, this world or the loaded library cannot do it
  overloaded,        ///< a queue's limit was reached
  no_member_left,    ///< no world is left to ask
  handler_failed,    ///< the worker's handler of a call ended by an exception
  register_lost,     ///< an argument of a call was never made, or went with a worker

  // The world was not formed.
  not_joined,          ///< ranks did not join in time
  expelled,            ///< the other survivors went on without this member
  rank_taken,          ///< a living process holds the rank
  size_disagrees,      ///< members joined with different sizes or options
  backend_disagrees,   ///< members joined with different backends
  device_unavailable,  ///< no such GPU here, or what is needed to use it is missing
  device_busy,         ///< the multiprocessors given to worlds on that device are used up
  device_degraded,     ///< too many communicators on that device could not be freed
  store_unreachable,   ///< the store did not answer
  wrong_secret,        ///< the shared secret differs, or only one side has one
  wrong_version,       ///< the peer speaks another protocol version
};

/// Returns lower-case words for people: "died", "was silent too long", "has left" ...
[[nodiscard]] std::string_view describe(cause c) noexcept;

/// Returns the name of the enumerator, for logs and JSON.
[[nodiscard]] std::string_view name_of(cause c) noexcept;

/// Names what was being done when something failed.
enum class operation_kind : std::uint8_t {
  none,
  form,
  send,
  receive,
  arrival,
  barrier,
  broadcast,
  reduce,
  all_reduce,
  gather,
  all_gather,
  scatter,
  reduce_scatter,
  all_to_all,
  suspend_device,
  resume_device,
  device_ready,
  settle,
  native,
  leave,
  call,  ///< made through a dispatcher; has a world once a worker was asked
};

/// Returns whether it has one peer and a lane, and moves a message.
[[nodiscard]] constexpr bool is_message(operation_kind k) noexcept {
  return k == operation_kind::send || k == operation_kind::receive;
}

/// Returns whether every member takes part, so that a member that has entered cannot
/// take it back.
[[nodiscard]] constexpr bool is_collective(operation_kind k) noexcept {
  return k >= operation_kind::barrier && k <= operation_kind::resume_device;
}

/// Returns the name that a caller writes: "send", "recv", "call" ...; "forming" for a
/// world that is awaited.
[[nodiscard]] std::string_view name_of(operation_kind k) noexcept;

/// Counts messages that were accepted from the user and that the receiver had not
/// confirmed when the world broke. It confirms several at once, so that some of them may
/// have been received.
struct undelivered_messages {
  rank_t rank = no_rank;
  lane on;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};

/// One failure, by value. A default-constructed one says that nothing failed.
class MANYWORLDS_EXPORT failure {
 public:
  failure() = default;
  failure(enum cause c, std::string text) : cause(c), detail(std::move(text)) {}

  /// The world that failed, or that the operation belonged to.
  world_name world;
  /// The epoch of the world; 0 before it is formed.
  std::uint64_t epoch = 0;
  /// Distinguishes worlds of one name in one process, also before there is an epoch.
  std::uint64_t world_instance = 0;
  /// The member that the cause is about: the one that broke the world, has left or is
  /// absent. Of an operation that failed by itself, as by its deadline, the peer.
  /// `no_rank` if no member is known.
  rank_t rank = no_rank;
  /// The process of that member.
  process_identity peer;
  /// What was being done, if anything.
  operation_kind operation = operation_kind::none;
  /// The receiver of a send; the sender of a receive or an `arrival`, or `no_rank` for
  /// any. It need not be the member that failed.
  rank_t operation_peer = no_rank;
  /// The lane of a send, of a receive or of an `arrival` that names one.
  std::optional<lane> operation_lane;
  /// Why it failed.
  enum cause cause = cause::none;
  /// Time from the peer's last sign of life to the notice: an upper bound of the time
  /// it took to notice.
  duration noticed_after{0};
  std::string detail;  ///< more about the cause, and what to do; may be empty
  std::string call;    ///< names the call of a dispatcher, as "17 of decode"
  /// What was accepted and not confirmed, by member and lane. It is known once the world
  /// is drained: `world::failure` has it then, and so have later operations.
  std::vector<undelivered_messages> undelivered;

  /// True if something failed.
  explicit operator bool() const noexcept { return cause != cause::none; }
  /// Returns whether the failure ended a world, not only one operation.
  [[nodiscard]] bool breaks_world() const noexcept {
    return cause >= cause::peer_died && cause <= cause::forked;
  }
  /// Returns a line like
  /// "left@3 broken: rank 2 (pid 4711) died; noticed after at most 0.4 ms, in recv from
  /// rank 1 on lane 0".
  [[nodiscard]] std::string text() const;
};

/// The one exception of operations on worlds. Copies share the failure.
class MANYWORLDS_EXPORT world_error : public std::exception {
 public:
  explicit world_error(manyworlds::failure f);

  [[nodiscard]] const char* what() const noexcept override;
  [[nodiscard]] const manyworlds::failure& failure() const noexcept {
    return state_->failure;
  }
  [[nodiscard]] manyworlds::cause cause() const noexcept { return state_->failure.cause; }

 private:
  struct state {
    manyworlds::failure failure;
    std::string text;
  };
  std::shared_ptr<const state> state_;
};

}  // namespace manyworlds::inline v0
