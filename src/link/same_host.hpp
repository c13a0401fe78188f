// Same host: the proof that the peer of a link lives on this host, and the memory that
// both then share.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "local_socket.hpp"
#include "manyworlds/io/environment.hpp"
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
  unique_descriptor bell;
  /// One end of the connection on which they have met, which carries descriptors.
  unique_descriptor line;
  /// The peer's process; 0 if this process has no name for it.
  pid_t pid = 0;
  /// Set if the peer's memory may be read.
  std::optional<remote_memory> memory;
  /// Why not, an errno; ECANCELED: it is turned off here, which needs no explanation.
  int memory_refusal = 0;
  std::unique_ptr<process_watch> process;
  /// Our word for the peer to watch, held since before the peer could see it.
  std::unique_ptr<robust_word> life;
};

/// What the owner of a `same_host` knows and is told. On the service reactor.
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

/// Meets the processes of this host on a Unix socket named by our incarnation. Everything
/// on the service reactor.
class same_host {
 public:
  /// `reads_peers`: whether it tries to read their memory.
  same_host(reactor& service, environment& env, const incarnation& self,
            same_host_events& events, bool reads_peers = true);

  /// From now on the arenas carry a word of ours by which the peer notices the end of
  /// this thread. The words outlive all parts.
  void hold_with(robust_words& words) noexcept { words_ = &words; }

  /// Empty, or why nobody can be met (said once, by the owner).
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }
  [[nodiscard]] invitation invite();

  /// Receives visitors until cancelled.
  [[nodiscard]] task<void> run();

  /// Why a visit to a process of another host, or of another network namespace, fails.
  static constexpr const char* elsewhere = "it is on another host";

  /// Goes to meet `peer`, with new memory. Nothing, and why, if it lives elsewhere, is
  /// not who it should be, or either side cannot share memory; at most for `limit`.
  [[nodiscard]] task<std::optional<shared_parts>> visit(incarnation peer,
                                                        invitation words, duration limit,
                                                        std::string& why_not);

 private:
  [[nodiscard]] task<void> receive_visitor(local_socket visitor);
  [[nodiscard]] task<std::optional<shared_parts>> meet(incarnation peer, invitation words,
                                                       std::string& why_not);
  void hold_life(shared_parts& parts);
  void probe_peer(shared_parts& parts, pid_t pid, const memory_probe& probe) const;

  reactor& service_;
  environment& env_;
  incarnation self_;
  same_host_events& events_;
  const bool reads_peers_;
  local_socket listener_;
  std::string refusal_;
  /// Peers read it to see whether they read us.
  std::unique_ptr<memory_probe> probe_;
  std::size_t visitors_ = 0;
  robust_words* words_ = nullptr;
};

}  // namespace manyworlds::inline v0::shm
