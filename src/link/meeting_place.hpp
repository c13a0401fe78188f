// Meeting place: where a process meets the linked processes of its host, and what two
// of them then share.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "io/stream.hpp"
#include "link/local_socket.hpp"
#include "link/process_watch.hpp"
#include "link/remote_memory.hpp"
#include "link/robust_word.hpp"
#include "link/shared_arena.hpp"
#include "manyworlds/io/environment.hpp"
#include "manyworlds/process_address.hpp"

namespace manyworlds::inline v0::detail::shm {

using nonce = std::array<std::byte, 16>;

/// Two secret words that one side of a link sends to the other over it. With the first
/// the visitor proves its identity, with the second the host does. A name or an address
/// proves nothing, since another process may have the same in another container.
struct invitation {
  nonce visitor{};
  nonce host{};

  friend bool operator==(const invitation&, const invitation&) noexcept = default;
};

/// The resources that two processes of one host share.
struct shared_parts {
  std::unique_ptr<shared_arena> arena;
  /// One end of a stream socket; a byte on it wakes the peer's reactor.
  socket bell;
  /// One end of the connection on which they met, which carries descriptors; none where
  /// the kernel is simulated.
  unique_descriptor line;
  /// The peer's process; 0 if this process has no name for it.
  pid_t pid = 0;
  /// Set if the peer's memory may be read.
  std::optional<remote_memory> memory;
  /// The errno of the refusal; 0 without `memory` if reading is turned off here.
  int memory_refusal = 0;
  /// Null where the kernel is simulated.
  std::unique_ptr<process_watch> process;
  /// Our word that the peer watches, held since before the peer could see it.
  std::unique_ptr<held_life> life;
};

/// Answers the questions of a meeting place and receives its visitors. Thread: the
/// service reactor.
class same_host_events {
 public:
  /// Returns the invitation sent over the link to that process, or null if no visitor
  /// is expected.
  virtual const invitation* invited(const incarnation& from) = 0;
  /// Receives the resources of a visitor that has proven its identity. They are in use
  /// once the visitor confirms over the link.
  virtual void visited(const incarnation& from, shared_parts parts) = 0;
  virtual void remark(std::string line) noexcept = 0;

 protected:
  ~same_host_events() = default;
};

/// Thread: the service reactor.
class meeting_place {
 public:
  explicit meeting_place(environment& env) noexcept : env_(env) {}
  meeting_place(const meeting_place&) = delete;
  meeting_place& operator=(const meeting_place&) = delete;
  virtual ~meeting_place() = default;

  /// Sets the words that later arenas carry, by which the peer notices the end of this
  /// thread. Lifetime: the words outlive all parts. A simulated kernel needs none,
  /// since no thread ends with a process there.
  virtual void hold_with(robust_words&) noexcept {}
  /// Returns why no process can be met, or an empty text. The owner logs it once.
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }
  [[nodiscard]] invitation invite() {
    invitation words;
    env_.fill_random(words.visitor);
    env_.fill_random(words.host);
    return words;
  }

  /// Receives visitors until cancelled.
  [[nodiscard]] virtual task<void> run() = 0;

  /// The reason of a failed visit to another host or another network namespace.
  static constexpr const char* elsewhere = "it is on another host";

  /// Visits `peer` with new memory, for at most `limit`. Returns nothing, and why, if
  /// the peer lives elsewhere, is another process, or if either side cannot share
  /// memory.
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

}  // namespace manyworlds::inline v0::detail::shm
