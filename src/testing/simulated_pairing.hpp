// Simulated pairing: how two processes of one simulated host pair, and what they then
// share.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "io/reactor.hpp"
#include "link/pairing.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "manyworlds/detail/seeded_random.hpp"
#include "testing/simulated_kernel.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Replaces the Unix socket and what it passes. The segment is a real one, mapped twice
/// into this process; the wake-up socket is one of a simulated pair; the line is a real
/// one; the peer's memory is this process's, readable while the peer lives. At random,
/// reading is refused for some pairs, at once or after a while.
class simulated_pairing final : public pairing, private simulated_resident {
 public:
  simulated_pairing(simulated_process& self, reactor& service, const incarnation& id,
                    pairing_listener& told, bool reads_peers);
  ~simulated_pairing() override;

  [[nodiscard]] task<void> run() override;

 private:
  struct exchange;

  [[nodiscard]] task<std::optional<shared_parts>> send_request(
      incarnation peer, pairing_nonces nonces, std::string& why_not) override;
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  void take(std::shared_ptr<exchange> request);
  void arrived() noexcept;
  void answer(exchange& e);
  void pass_line(shared_parts& ours, shared_parts& theirs);
  void furnish(shared_parts& parts, simulated_process& peer);

  simulated_process& self_;
  reactor& service_;
  incarnation id_;
  std::string name_;
  pairing_listener& told_;
  const bool reads_peers_;
  seeded_random random_;
  std::deque<std::shared_ptr<exchange>> requests_;
  event request_came_;
  member_work<&simulated_pairing::arrived> arrival_{*this};
  bool arrival_is_posted_ = false;
};

}  // namespace manyworlds::inline v0::detail::shm
