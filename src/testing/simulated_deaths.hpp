// Simulated deaths: what a simulated kernel does with the liveness futexes of the dead.
#pragma once

#include <map>

#include "io/reactor.hpp"
#include "link/death_notices.hpp"
#include "link/shm_segment.hpp"
#include "manyworlds/detail/member_work.hpp"
#include "testing/simulated_kernel.hpp"

namespace manyworlds::inline v0::detail::shm {

/// One futex of ours. A kill of the process marks it at once, as the kernel does before
/// it tears down the process.
class simulated_liveness final : public held_liveness, private simulated_resident {
 public:
  simulated_liveness(simulated_process& self, shm_segment& segment);
  ~simulated_liveness() override;

 private:
  void killed() noexcept override;

  simulated_process& self_;
  shm_segment& segment_;
  liveness_futex& futex_;
};

/// Polls all futexes some time after a process of this host was killed.
class simulated_deaths final : public death_notices, private simulated_resident {
 public:
  simulated_deaths(simulated_process& self, reactor& home);
  ~simulated_deaths() override;

  [[nodiscard]] ticket add(liveness_futex& futex, std::function<void()> died) override;
  void remove(ticket t) noexcept override { watched_.erase(t); }

 private:
  struct watched {
    liveness_futex* futex;
    std::function<void()> died;
  };
  void process_killed() noexcept override;
  void poll() noexcept;

  simulated_process& self_;
  reactor& home_;
  std::map<ticket, watched> watched_;
  std::uint64_t last_ticket_ = 0;
  member_work<&simulated_deaths::poll> poll_{*this};
  bool poll_is_posted_ = false;
};

}  // namespace manyworlds::inline v0::detail::shm
