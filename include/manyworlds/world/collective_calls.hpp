// Collective calls: the operations of a world on host memory in which every member
// takes part.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "manyworlds/detail/access.hpp"
#include "manyworlds/world/world_operation.hpp"

namespace manyworlds::inline v0 {

namespace detail {

using collective_operation = world_operation<void, collective_request>;

}  // namespace detail

/// The collectives of a world on host memory, with any backend. A part of `world`.
///
///     std::vector<float> all(x.size() * static_cast<std::size_t>(w.size()));
///     co_await w.broadcast(x, mw::root{0});
///     co_await w.all_reduce(x, mw::sum).within(10s);
///     co_await w.all_gather(x, all);
///     co_await w.barrier();
///
/// Each function returns a `world_operation`: `within` and `stop` modify it, and it is
/// awaited or spawned. Every member starts the same collectives in the same order, each
/// from one buffer of elements to another. They take effect one after the other, beside
/// sends and receives, which they do not wait for. A collective ends when this member's
/// part is done: its buffers may be used again and hold the result. A root that only
/// gives, or a member that only gives to the root, may be done before the others have
/// entered.
///
/// Both buffers have the same element type (any of NCCL's). They must not overlap,
/// except as NCCL allows it. `in` and `out` of `all_reduce` and `reduce` may be the
/// same. In the others but `all_to_all` the smaller may be this rank's part of the
/// larger. Results are the same bits on all members, and from run to run. Size, members
/// and place decide which algorithm computes them (`algorithms.hpp`).
///
/// A collective that fails may have written a part of its result, or of a reduction. The
/// contents of `out` are then undefined, and so are those of a `data` that it writes.
/// `in` is as it was, unless it overlaps `out`: try again from there, in the world of
/// those that are left.
///
/// Errors: the causes of any operation. Of these, here:
/// - `invalid_argument`: the arguments alone are wrong. Nothing is started here; the
///   world of members that entered that collective rightly breaks (`mismatch`, naming
///   both).
/// - `mismatch`: members disagree on kind, element type, reduction, root or size.
///   Breaks the world.
/// - `closed`: a member has left, for this and all later collectives.
/// - `overdue`: ranks did not enter within `world_options::collective_break`, or a
///   deadline (`within`) passed here. Breaks the world, naming the absent ranks. The log
///   names them after `collective_log`.
/// - `cancelled`: the token of `stop` was triggered before the start. A later stop is
///   waited out: the others count on this member.
template <class World>
class collective_calls {
 public:
  /// Ends when every member has entered it.
  world_operation<void> barrier(source_position where = source_position()) {
    return world_operation<void>(
        detail::operation_request(core(), operation_kind::barrier, no_rank, {}, where));
  }

  /// Every member gets the root's `data`.
  detail::collective_operation broadcast(buffer_view data, root at,
                                         source_position where = source_position()) {
    return collective(operation_kind::broadcast, data, data, sum, at.rank(), where);
  }

  /// Every member gets in `data` the reduction of all members' `data`.
  detail::collective_operation all_reduce(buffer_view data, reduction by,
                                          source_position where = source_position()) {
    return collective(operation_kind::all_reduce, data, data, by, no_rank, where);
  }
  detail::collective_operation all_reduce(const_buffer_view in, buffer_view out,
                                          reduction by,
                                          source_position where = source_position()) {
    return collective(operation_kind::all_reduce, in, out, by, no_rank, where);
  }

  /// The root gets the reduction; the others' `data` is left as it is.
  detail::collective_operation reduce(buffer_view data, reduction by, root at,
                                      source_position where = source_position()) {
    return collective(operation_kind::reduce, data, data, by, at.rank(), where);
  }
  /// The others may give an empty `out`.
  detail::collective_operation reduce(const_buffer_view in, buffer_view out, reduction by,
                                      root at,
                                      source_position where = source_position()) {
    return collective(operation_kind::reduce, in, out, by, at.rank(), where);
  }

  /// `out` gets the elements of each rank in turn: it has size() times those of `in`.
  detail::collective_operation all_gather(const_buffer_view in, buffer_view out,
                                          source_position where = source_position()) {
    return collective(operation_kind::all_gather, in, out, sum, no_rank, where);
  }
  /// `out` gets `counts[r]` elements of each rank r; `in` has `counts[rank()]`. All
  /// members give the same counts. Lifetime: they must live until the await ends.
  detail::collective_operation all_gather_v(const_buffer_view in, buffer_view out,
                                            std::span<const std::size_t> counts,
                                            source_position where = source_position()) {
    return variable(operation_kind::all_gather, in, {}, out, counts, sum, no_rank, where);
  }

  /// The root gets what `all_gather` gives; the others may give an empty `out`.
  detail::collective_operation gather(const_buffer_view in, buffer_view out, root at,
                                      source_position where = source_position()) {
    return collective(operation_kind::gather, in, out, sum, at.rank(), where);
  }
  /// The others may give an empty `out` and no counts.
  detail::collective_operation gather_v(const_buffer_view in, buffer_view out,
                                        std::span<const std::size_t> counts, root at,
                                        source_position where = source_position()) {
    return variable(operation_kind::gather, in, {}, out, counts, sum, at.rank(), where);
  }

  /// The reverse of `gather`: the others may give an empty `in`.
  detail::collective_operation scatter(const_buffer_view in, buffer_view out, root at,
                                       source_position where = source_position()) {
    return collective(operation_kind::scatter, in, out, sum, at.rank(), where);
  }
  /// The reverse of `gather_v`: the others may give an empty `in` and no counts.
  detail::collective_operation scatter_v(const_buffer_view in,
                                         std::span<const std::size_t> counts,
                                         buffer_view out, root at,
                                         source_position where = source_position()) {
    return variable(operation_kind::scatter, in, counts, out, {}, sum, at.rank(), where);
  }

  /// `in` has size() times the elements of `out`, which gets this rank's part of the
  /// reduction.
  detail::collective_operation reduce_scatter(const_buffer_view in, buffer_view out,
                                              reduction by,
                                              source_position where = source_position()) {
    return collective(operation_kind::reduce_scatter, in, out, by, no_rank, where);
  }
  /// `counts[r]` elements go to rank r; all members give the same counts.
  detail::collective_operation reduce_scatter_v(
      const_buffer_view in, std::span<const std::size_t> counts, buffer_view out,
      reduction by, source_position where = source_position()) {
    return variable(operation_kind::reduce_scatter, in, counts, out, {}, by, no_rank,
                    where);
  }

  /// Part r of `in` goes to rank r; part r of `out` comes from there.
  detail::collective_operation all_to_all(const_buffer_view in, buffer_view out,
                                          source_position where = source_position()) {
    return collective(operation_kind::all_to_all, in, out, sum, no_rank, where);
  }
  /// `in_counts[r]` elements go to rank r; `out_counts[r]` come from there and must
  /// equal what rank r gives as its `in_counts` for this rank.
  detail::collective_operation all_to_all_v(const_buffer_view in,
                                            std::span<const std::size_t> in_counts,
                                            buffer_view out,
                                            std::span<const std::size_t> out_counts,
                                            source_position where = source_position()) {
    return variable(operation_kind::all_to_all, in, in_counts, out, out_counts, sum,
                    no_rank, where);
  }

 private:
  [[nodiscard]] detail::world_core& core() const {
    return detail::access::core(static_cast<const World&>(*this));
  }
  detail::collective_operation collective(operation_kind kind, const_buffer_view in,
                                          buffer_view out, reduction by, rank_t at,
                                          source_position where) {
    detail::collective_request asked(in, out);
    asked.part.by = by;
    asked.part.root = at;
    return detail::collective_operation(
        detail::operation_request(core(), kind, no_rank, {}, where), std::move(asked));
  }
  detail::collective_operation variable(operation_kind kind, const_buffer_view in,
                                        std::span<const std::size_t> in_counts,
                                        buffer_view out,
                                        std::span<const std::size_t> out_counts,
                                        reduction by, rank_t at, source_position where) {
    detail::collective_request asked(in, out);
    asked.part.by = by;
    asked.part.root = at;
    asked.part.is_variable = true;
    asked.part.source_counts = in_counts;
    asked.part.target_counts = out_counts;
    return detail::collective_operation(
        detail::operation_request(core(), kind, no_rank, {}, where), std::move(asked));
  }
};

}  // namespace manyworlds::inline v0
