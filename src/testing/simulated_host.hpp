// Simulated host: what stands for the kernel of one simulated process's host.
#pragma once

#include <memory>

#include "link/host_kernel.hpp"
#include "testing/simulated_deaths.hpp"
#include "testing/simulated_pairing.hpp"

namespace manyworlds::inline v0::detail {

class simulated_host final : public shm::host_kernel {
 public:
  explicit simulated_host(simulated_process& self) noexcept : self_(self) {}

  [[nodiscard]] std::unique_ptr<shm::death_notices> make_death_notices(
      reactor& service) override {
    return std::make_unique<shm::simulated_deaths>(self_, service);
  }
  [[nodiscard]] std::unique_ptr<shm::pairing> make_pairing(reactor& service,
                                                           const incarnation& self,
                                                           shm::pairing_listener& told,
                                                           bool reads_peers) override {
    return std::make_unique<shm::simulated_pairing>(self_, service, self, told,
                                                    reads_peers);
  }

 private:
  simulated_process& self_;
};

}  // namespace manyworlds::inline v0::detail
