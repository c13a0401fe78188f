// Visible GPUs: what CUDA_VISIBLE_DEVICES lets a process see.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace manyworlds::inline v0::detail {

/// A GPU that is seen: one of those that were listed, or a part of one.
struct visible_gpu {
  static constexpr std::size_t unknown = static_cast<std::size_t>(-1);

  std::string name;  ///< its UUID, or that of a MIG instance as it was given
  std::size_t position = unknown;  ///< among those that were listed

  friend bool operator==(const visible_gpu&, const visible_gpu&) = default;
};

/// Returns what `value` makes visible of the GPUs with these UUIDs, in its order. As with
/// CUDA, an entry is an index, a UUID or the first characters of just one UUID; the first
/// entry that is none of these ends the list. So does one that names a GPU again, since
/// no GPU is given away twice. Indices count in the order of `uuids`,
/// which is CUDA's where all GPUs are of one kind, or CUDA_DEVICE_ORDER is PCI_BUS_ID.
///
/// "MIG-..." is taken as it stands: only the driver knows these. The older form
/// "MIG-GPU-UUID/1/0" names the GPU that it is part of.
[[nodiscard]] std::vector<visible_gpu> visible_gpus(
    std::string_view value, const std::vector<std::string>& uuids);

}  // namespace manyworlds::inline v0::detail
