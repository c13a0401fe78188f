// Placement devices: which CPUs and GPUs of its node an instance has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mpmd/placement_problem.hpp"

namespace manyworlds::inline v0::detail {

/// Gives CPUs and GPUs to what is placed: `node_of` says where each bundle is. GPUs come
/// from one NUMA node where they can, and CPUs too: from that of the GPU, if there is
/// one. CPUs that stand to `taken` instances, and GPUs, are not given. Sets `cpus` and
/// `gpus` of `places`, which are those of `wanted`. Precondition: all of it fits.
void give_devices(const placement_problem& problem, std::span<const instance_place> taken,
                  const std::vector<std::uint32_t>& node_of,
                  std::vector<instance_place>& places);

}  // namespace manyworlds::inline v0::detail
