// Collective algorithms: what each member sends to which other. See `algorithm` for the
// sources.
#pragma once

#include "host/schedule.hpp"
#include "manyworlds/coro/task.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "memory/payload_copy.hpp"

namespace manyworlds::inline v0::detail::host {

/// Carries out the schedule's shape. Precondition: the algorithm can do its kind.
[[nodiscard]] task<void> carry_out(schedule& x, algorithm use);

// The functions of the algorithm table. Each ends when this member's buffers are no
// longer in use. Precondition: the world has at least two members.

[[nodiscard]] task<void> barrier_of_all(schedule& x);
[[nodiscard]] task<void> barrier_by_dissemination(schedule& x);
[[nodiscard]] task<void> broadcast_to_all(schedule& x);
[[nodiscard]] task<void> broadcast_by_tree(schedule& x);
[[nodiscard]] task<void> broadcast_in_ring(schedule& x);
[[nodiscard]] task<void> reduce_at_root(schedule& x);
[[nodiscard]] task<void> reduce_directly(schedule& x);
[[nodiscard]] task<void> reduce_by_tree(schedule& x);
[[nodiscard]] task<void> reduce_in_ring(schedule& x);
[[nodiscard]] task<void> all_reduce_at_each(schedule& x);
[[nodiscard]] task<void> all_reduce_directly(schedule& x);
[[nodiscard]] task<void> all_reduce_by_doubling(schedule& x);
[[nodiscard]] task<void> all_reduce_in_ring(schedule& x);
[[nodiscard]] task<void> all_gather_at_once(schedule& x);
[[nodiscard]] task<void> all_gather_in_ring(schedule& x);
[[nodiscard]] task<void> reduce_scatter_directly(schedule& x);
[[nodiscard]] task<void> reduce_scatter_in_ring(schedule& x);
[[nodiscard]] task<void> gather_at_root(schedule& x);
[[nodiscard]] task<void> scatter_from_root(schedule& x);
[[nodiscard]] task<void> all_to_all_at_once(schedule& x);

// The second half of others: each member has its part of `whole`, which `by` divides,
// and gets the others'.
[[nodiscard]] task<void> gather_parts_at_once(schedule& x, const parts& by,
                                              std::span<std::byte> whole);
[[nodiscard]] task<void> gather_parts_in_ring(schedule& x, const parts& by,
                                              std::span<std::byte> whole);

// These work in slices and yield between them.

[[nodiscard]] task<void> copy_slices(schedule& x, std::span<const std::byte> from,
                                     std::span<std::byte> into);
/// Copies one slice at once, without a coroutine, which may take longer than the copy.
/// Returns false if there is more than a slice.
[[nodiscard]] inline bool copy_one_slice(std::span<const std::byte> from,
                                         std::span<std::byte> into) noexcept {
  if (from.size() > schedule::largest_slice) return false;
  MW_ASSERT(from.size() == into.size(), "what is copied fits its place");
  // Empty spans may have null pointers, which a copy does not allow.
  if (!from.empty() && from.data() != into.data())
    copy_payload(into.data(), from.data(), from.size());
  return true;
}
/// Combines `low` and `high` into `into`, which may be exactly one of both. `is_last`
/// says that all members have contributed.
[[nodiscard]] task<void> combine_slices(schedule& x, std::span<const std::byte> low,
                                        std::span<const std::byte> high,
                                        std::span<std::byte> into, bool is_last = false);

}  // namespace manyworlds::inline v0::detail::host
