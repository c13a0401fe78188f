// Simulated deaths: what a simulated kernel does with the words of the dead.
#pragma once

#include <map>

#include "io/reactor.hpp"
#include "link/death_notices.hpp"
#include "link/shared_arena.hpp"
#include "testing/simulated_kernel.hpp"

namespace manyworlds::inline v0::detail::shm {

/// One word of ours. A kill of the process marks it at once, as the kernel does before
/// it tears down the process.
class simulated_life final : public held_life, private simulated_resident {
 public:
  simulated_life(simulated_process& self, shared_arena& arena);
  ~simulated_life() override;

 private:
  void killed() noexcept override;

  simulated_process& self_;
  shared_arena& arena_;
  life_word& word_;
};

/// Looks at all words some time after a process of this host was killed.
class simulated_deaths final : public death_notices, private simulated_resident {
 public:
  simulated_deaths(simulated_process& self, reactor& home);
  ~simulated_deaths() override;

  [[nodiscard]] ticket add(life_word& word, std::function<void()> died) override;
  void remove(ticket t) noexcept override { watched_.erase(t); }

 private:
  struct watched {
    life_word* word;
    std::function<void()> died;
  };
  struct looking final : work {
    explicit looking(simulated_deaths& d) noexcept
        : work([](work& w) noexcept { static_cast<looking&>(w).owner.look(); }),
          owner(d) {}
    simulated_deaths& owner;
    bool is_posted = false;
  };

  void process_killed() noexcept override;
  void look() noexcept;

  simulated_process& self_;
  reactor& home_;
  std::map<ticket, watched> watched_;
  std::uint64_t last_ticket_ = 0;
  looking looking_{*this};
};

}  // namespace manyworlds::inline v0::detail::shm
