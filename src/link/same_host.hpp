// Same host: the proof that the peer of a link lives on this host, and the memory that
// both then share.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "link/local_socket.hpp"
#include "link/meeting_place.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Meets the processes of this host on a Unix socket named by our incarnation. Thread:
/// the service reactor.
class same_host final : public meeting_place {
 public:
  /// Listens. With `reads_peers` it tries to read the memory of peers.
  same_host(reactor& service, environment& env, const incarnation& self,
            same_host_events& events, bool reads_peers = true);

  void hold_with(robust_words& words) noexcept override { words_ = &words; }
  [[nodiscard]] task<void> run() override;

 private:
  [[nodiscard]] task<void> receive_visitor(local_socket visitor);
  [[nodiscard]] task<std::optional<shared_parts>> meet(incarnation peer, invitation words,
                                                       std::string& why_not) override;
  void hold_life(shared_parts& parts);
  void probe_peer(shared_parts& parts, pid_t pid, const memory_probe& probe) const;

  reactor& service_;
  incarnation self_;
  same_host_events& events_;
  const bool reads_peers_;
  local_socket listener_;
  /// Peers read it to check that they read this process.
  std::unique_ptr<memory_probe> probe_;
  std::size_t visitors_ = 0;
  robust_words* words_ = nullptr;
};

}  // namespace manyworlds::inline v0::detail::shm
