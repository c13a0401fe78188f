// Simulated same host: how two processes of one simulated host meet, and what they then
// share.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "io/reactor.hpp"
#include "link/meeting_place.hpp"
#include "manyworlds/coro/event.hpp"
#include "manyworlds/detail/seeded_random.hpp"
#include "testing/simulated_kernel.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Replaces the Unix socket and what it passes. The arena is a real one, mapped twice
/// into this process; the bell is a simulated socket pair; the peer's memory is this
/// process's, readable while the peer lives. At random, reading is refused for some
/// pairs, at once or after a while.
class simulated_same_host final : public meeting_place, private simulated_resident {
 public:
  simulated_same_host(simulated_process& self, reactor& service, const incarnation& id,
                      same_host_events& events, bool reads_peers);
  ~simulated_same_host() override;

  [[nodiscard]] task<void> run() override;

 private:
  struct visit_words;
  struct arrival final : work {
    explicit arrival(simulated_same_host& h) noexcept
        : work([](work& w) noexcept { static_cast<arrival&>(w).owner.arrived(); }),
          owner(h) {}
    simulated_same_host& owner;
    bool is_posted = false;
  };

  [[nodiscard]] task<std::optional<shared_parts>> meet(incarnation peer, invitation words,
                                                       std::string& why_not) override;
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  void come(std::shared_ptr<visit_words> visitor);
  void arrived() noexcept;
  void receive(visit_words& visitor);
  void furnish(shared_parts& parts, simulated_process& peer);

  simulated_process& self_;
  reactor& service_;
  incarnation id_;
  std::string name_;
  same_host_events& events_;
  const bool reads_peers_;
  seeded_random random_;
  std::deque<std::shared_ptr<visit_words>> visitors_;
  event visitor_came_;
  arrival arrival_{*this};
};

}  // namespace manyworlds::inline v0::detail::shm
