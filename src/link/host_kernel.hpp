// Host kernel: what stands for the kernel where processes of one host share memory.
#pragma once

#include <memory>

#include "link/death_notices.hpp"
#include "link/pairing.hpp"

namespace manyworlds::inline v0::detail::shm {

/// Makes what a runtime uses in place of Unix sockets and robust futexes. A simulation
/// implements it. Thread: the service reactor.
class host_kernel {
 public:
  [[nodiscard]] virtual std::unique_ptr<death_notices> make_death_notices(
      reactor& service) = 0;
  [[nodiscard]] virtual std::unique_ptr<pairing> make_pairing(reactor& service,
                                                              const incarnation& self,
                                                              pairing_listener& told,
                                                              bool reads_peers) = 0;

 protected:
  ~host_kernel() = default;
};

}  // namespace manyworlds::inline v0::detail::shm
