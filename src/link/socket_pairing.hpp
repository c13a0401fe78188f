// Socket pairing: pairing over Unix sockets, which only processes of one host reach.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "link/local_socket.hpp"
#include "link/pairing.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Listens on a Unix socket named by our incarnation. Thread: the service reactor.
class socket_pairing final : public pairing {
 public:
  /// Listens. With `reads_peers` it tries to read the memory of peers.
  socket_pairing(reactor& service, environment& env, const incarnation& self,
                 pairing_listener& told, bool reads_peers = true);

  void hold_in(robust_futex_list& list) noexcept override { futexes_ = &list; }
  [[nodiscard]] task<void> run() override;

 private:
  [[nodiscard]] task<void> answer(local_socket from);
  [[nodiscard]] task<std::optional<shared_parts>> send_request(
      incarnation peer, pairing_nonces nonces, std::string& why_not) override;
  void hold_liveness(shared_parts& parts);
  void probe_peer(shared_parts& parts, pid_t pid, const memory_probe& probe) const;

  reactor& service_;
  incarnation self_;
  pairing_listener& told_;
  const bool reads_peers_;
  local_socket listener_;
  /// Peers read it to check that they read this process.
  std::unique_ptr<memory_probe> probe_;
  std::size_t requests_ = 0;
  robust_futex_list* futexes_ = nullptr;
};

}  // namespace manyworlds::inline v0::detail::shm
