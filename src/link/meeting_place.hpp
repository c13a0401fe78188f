// Meeting place: where a process meets those of its host that it has links with, and what
// two that have met share.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "local_socket.hpp"
#include "manyworlds/io/environment.hpp"
#include "manyworlds/io/stream.hpp"
#include "manyworlds/link/process_address.hpp"
#include "process_watch.hpp"
#include "remote_memory.hpp"
#include "robust_word.hpp"
#include "shared_arena.hpp"

namespace manyworlds::inline v0::shm {

using nonce = std::array<std::byte, 16>;

/// What one side of a link says to the other over it, and nobody else knows: with the
/// first word the visitor proves who it is, with the second the host does. A name or an
/// address proves nothing: in containers the same may be somebody else's.
struct invitation {
  nonce visitor{};
  nonce host{};

  friend bool operator==(const invitation&, const invitation&) noexcept = default;
};

/// What two processes of one host have in common.
struct shared_parts {
  std::unique_ptr<shared_arena> arena;
  /// One end of a stream socket: a byte on it wakes the peer's reactor.
  socket bell;
  /// One end of the connection on which they have met, which carries descriptors; none
  /// where the kernel is simulated.
  unique_descriptor line;
  /// The peer's process; 0 if this process has no name for it.
  pid_t pid = 0;
  /// Set if the peer's memory may be read.
  std::optional<remote_memory> memory;
  /// The errno why it may not; 0 without `memory`: that is turned off here.
  int memory_refusal = 0;
  /// Null where the kernel is simulated.
  std::unique_ptr<process_watch> process;
  /// Our word for the peer to watch, held since before the peer could see it.
  std::unique_ptr<held_life> life;
};

/// What the owner of a meeting place knows and is told. On the service reactor.
class same_host_events {
 public:
  /// What was said over the link to that process; null if there is none to be met.
  virtual const invitation* invited(const incarnation& from) = 0;
  /// A visitor that has proven itself came with this. It is up when the visitor says so
  /// over the link.
  virtual void visited(const incarnation& from, shared_parts parts) = 0;
  virtual void remark(std::string line) noexcept = 0;

 protected:
  ~same_host_events() = default;
};

/// Everything on the service reactor.
class meeting_place {
 public:
  explicit meeting_place(environment& env) noexcept : env_(env) {}
  meeting_place(const meeting_place&) = delete;
  meeting_place& operator=(const meeting_place&) = delete;
  virtual ~meeting_place() = default;

  /// From now on the arenas carry one of these words, by which the peer notices the end
  /// of this thread. The words outlive all parts. Not where the kernel is simulated: no
  /// thread ends with a process there.
  virtual void hold_with(robust_words&) noexcept {}
  /// Empty, or why nobody can be met (said once, by the owner).
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }
  [[nodiscard]] invitation invite() {
    invitation words;
    env_.fill_random(words.visitor);
    env_.fill_random(words.host);
    return words;
  }

  /// Receives visitors until cancelled.
  [[nodiscard]] virtual task<void> run() = 0;

  /// Why a visit to a process of another host, or of another network namespace, fails.
  static constexpr const char* elsewhere = "it is on another host";

  /// Goes to meet `peer`, with new memory. Nothing, and why, if it lives elsewhere, is
  /// not who it should be, or either side cannot share memory; at most for `limit`.
  [[nodiscard]] task<std::optional<shared_parts>> visit(incarnation peer,
                                                        invitation words, duration limit,
                                                        std::string& why_not);

 protected:
  [[nodiscard]] virtual task<std::optional<shared_parts>> meet(incarnation peer,
                                                               invitation words,
                                                               std::string& why_not) = 0;
  environment& env_;
  std::string refusal_;
};

}  // namespace manyworlds::inline v0::shm
