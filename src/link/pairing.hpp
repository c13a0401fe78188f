// Pairing: the linked processes of one host prove that they share it, and what two of
// them then share.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "io/stream.hpp"
#include "link/liveness_futex.hpp"
#include "link/local_socket.hpp"
#include "link/process_watch.hpp"
#include "link/remote_memory.hpp"
#include "link/shm_segment.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/io/environment.hpp"
#include "manyworlds/process_address.hpp"

namespace manyworlds::inline v0::detail::shm {

using nonce = std::array<std::byte, 16>;

/// Two secrets that one side of a link sends to the other over it. A pairing request
/// proves its sender's identity by the first, the reply by the second. A name or an
/// address proves nothing, since another process may have the same in another container.
struct pairing_nonces {
  nonce request{};
  nonce reply{};

  friend bool operator==(const pairing_nonces&, const pairing_nonces&) noexcept = default;
};

/// The resources that two processes of one host share.
struct shared_parts {
  std::unique_ptr<shm_segment> segment;
  /// One end of a stream socket; a byte on it wakes the peer's reactor.
  socket wake_socket;
  /// One end of the connection on which they paired, which carries descriptors; a
  /// simulation may have none.
  unique_descriptor line;
  /// Set if the peer's memory may be read.
  std::optional<remote_memory> memory;
  /// The errno of the refusal; 0 without `memory` if reading is turned off here.
  int memory_refusal = 0;
  /// Null where the kernel is simulated.
  std::unique_ptr<process_watch> process;
  /// Our futex that the peer watches, held since before the peer could see it.
  std::unique_ptr<held_liveness> liveness;
};

/// Decides about pairing requests. Thread: the service reactor.
class pairing_listener {
 public:
  /// Returns the nonces that were sent over the link to that process, or null if no
  /// request is expected of it.
  virtual const pairing_nonces* expected_nonces(const incarnation& from) = 0;
  /// Receives what a process shares that has proven its identity. It is in use once
  /// that process confirms over the link.
  virtual void paired(const incarnation& from, shared_parts parts) = 0;
  virtual void log(std::string line) noexcept = 0;

 protected:
  ~pairing_listener() = default;
};

/// Requests pairing of other processes, and answers their requests. Thread: the service
/// reactor.
class pairing {
 public:
  explicit pairing(environment& env) noexcept : env_(env) {}
  pairing(const pairing&) = delete;
  pairing& operator=(const pairing&) = delete;
  virtual ~pairing() = default;

  /// Sets the list of the futexes in later segments, by which the peer notices the end of
  /// this thread. Lifetime: the list outlives all parts. A simulated kernel needs none,
  /// since no thread ends with a process there.
  virtual void hold_in(robust_futex_list&) noexcept {}
  /// Returns why no process can send a request here, or an empty text. The owner logs
  /// it once.
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }
  [[nodiscard]] pairing_nonces make_nonces() {
    pairing_nonces fresh;
    env_.fill_random(fresh.request);
    env_.fill_random(fresh.reply);
    return fresh;
  }

  /// Answers requests until cancelled.
  [[nodiscard]] virtual task<void> run() = 0;

  /// The reason of a request that failed since the peer is on another host or in another
  /// network namespace.
  static constexpr const char* elsewhere = "it is on another host";

  /// Requests that `peer` shares new memory, for at most `limit`. Returns nothing, and
  /// why, if the peer lives elsewhere, is another process, or if either side cannot
  /// share memory.
  [[nodiscard]] task<std::optional<shared_parts>> request(incarnation peer,
                                                          pairing_nonces nonces,
                                                          duration limit,
                                                          std::string& why_not);

 protected:
  [[nodiscard]] virtual task<std::optional<shared_parts>> send_request(
      incarnation peer, pairing_nonces nonces, std::string& why_not) = 0;
  environment& env_;
  std::string refusal_;
};

inline task<std::optional<shared_parts>> pairing::request(incarnation peer,
                                                          pairing_nonces nonces,
                                                          duration limit,
                                                          std::string& why_not) {
  try {
    co_return co_await within(send_request(peer, nonces, why_not), limit);
  } catch (const timed_out&) {
    why_not = "it did not answer on its Unix socket in time";
  }
  co_return std::nullopt;
}

}  // namespace manyworlds::inline v0::detail::shm
