// Torch variables: what torchrun would tell an instance of its role, in which the
// instances are the ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mpmd/job_context.hpp"
#include "mpmd/node_views.hpp"

namespace manyworlds::inline v0::detail {

/// The ports at which the ranks of a role meet, [first, end): below 29500, which torchrun
/// takes by itself, and below those that Linux gives to outgoing connections (32768 on).
inline constexpr std::uint32_t first_rank_port = 20000;
inline constexpr std::uint32_t end_of_rank_ports = 29500;

/// Returns the port at which the ranks of the role of that number meet.
///
/// torchrun lets the agent of rank 0 look for a free port, and tells it by its
/// rendezvous; another program may take it meanwhile. Here it is computed, so that each
/// master says the same without asking an agent: from the number that was drawn when the
/// job began, the role, and the incarnation of its instance 0, which listens there. Two
/// jobs on a host rarely have the same (one pair in 9,500), and two roles of a job never.
/// What an incarnation has left is not in the way of the next, and where a port is taken,
/// the restart gives another. A role that sets MASTER_PORT itself keeps that.
[[nodiscard]] std::uint32_t rank_port(const job_context& job, std::size_t role);

/// The place of an instance among those of its role.
struct rank_place {
  std::size_t local_rank = 0;
  std::size_t local_size = 1;
  std::size_t node = 0;
  std::size_t nodes = 1;
};

/// The places of all, for one turn of the master: each role is counted once, when the
/// first of its instances is asked for. The job does not change meanwhile.
class rank_places {
 public:
  explicit rank_places(const job_context& job)
      : job_(job), by_role_(job.graph().roles().size()) {}

  [[nodiscard]] const rank_place& of(std::size_t instance);

 private:
  void count(std::size_t role, std::vector<rank_place>& places) const;

  const job_context& job_;
  std::vector<std::vector<rank_place>> by_role_;
};

/// Returns what torchrun sets by the places of a role's instances: MASTER_ADDR and
/// MASTER_PORT, LOCAL_*, GROUP_* by nodes, and TORCHELASTIC_MAX_RESTARTS. Those of a
/// place are left out where the role sets one of them itself.
///
/// All that start together are told the same. One that is started again by itself is told
/// where instance 0 listens since its own start; where that one is started again, all
/// have to be (`restart_together`). An instance with GPUs of its own sees the first of
/// them as device 0, as by `torchrun --virtual-local-rank`.
[[nodiscard]] std::map<std::string, std::string> torch_variables(const job_context& job,
                                                                 const node_views& nodes,
                                                                 rank_places& places,
                                                                 std::size_t instance);

}  // namespace manyworlds::inline v0::detail
