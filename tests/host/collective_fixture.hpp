// Collectives among the members of a cluster, and what must come out of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "cluster.hpp"
#include "manyworlds/detail/collective_part.hpp"

namespace manyworlds::host_tests {

struct collective_op : test_operation {
  explicit collective_op(operation_kind k) : test_operation(k) { collective = &part; }
  collective_op(operation_kind k, const_buffer_view from, buffer_view into)
      : collective_op(k) {
    in = from;
    out = into;
    source = const_view_list(std::span(&in, 1));
    target = view_list(std::span(&out, 1));
  }

  const_buffer_view in;
  buffer_view out;
  collective_part part;
};

/// What rank `r` contributes: small whole numbers, so that sums and products are exact in
/// any order.
inline std::int32_t element_of(rank_t r, std::size_t i) {
  return static_cast<std::int32_t>((static_cast<std::size_t>(r) * 5 + i * 3) % 7) + 1;
}

inline std::vector<std::int32_t> contribution(rank_t r, std::size_t count) {
  std::vector<std::int32_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = element_of(r, i);
  return values;
}

inline std::int32_t reduced(reduction by, rank_t size, std::size_t i) {
  std::int32_t total = element_of(0, i);
  for (rank_t r = 1; r < size; ++r) {
    const std::int32_t v = element_of(r, i);
    switch (by) {
      case reduction::sum:
      case reduction::avg:
        total += v;
        break;
      case reduction::prod:
        total *= v;
        break;
      case reduction::min:
        total = std::min(total, v);
        break;
      case reduction::max:
        total = std::max(total, v);
        break;
    }
  }
  return by == reduction::avg ? total / size : total;
}

/// One collective of all members: its buffers, and what they must hold at its end.
struct collective_run {
  /// `count` elements are one rank's part, or of broadcast, reduce and all_reduce the
  /// whole. `variable`: rank r's part has r more (and rank 1's none).
  collective_run(operation_kind kind, rank_t size, std::size_t count, reduction by,
                 rank_t root, bool in_place, bool variable);

  [[nodiscard]] std::size_t part_of(rank_t r) const {
    return counts[static_cast<std::size_t>(r)];
  }
  [[nodiscard]] std::size_t start_of(rank_t r) const {
    return std::accumulate(counts.begin(), counts.begin() + r, std::size_t{0});
  }
  void put_in_place(rank_t r, std::span<std::int32_t>& in, std::span<std::int32_t>& out);
  void start(cluster& c, rank_t r) { c.at(r).start(ops[static_cast<std::size_t>(r)]); }
  void start(cluster& c) {
    for (rank_t r = 0; r < size; ++r) start(c, r);
  }
  [[nodiscard]] bool ended() const {
    return std::all_of(ops.begin(), ops.end(), [](auto& op) { return op.ended(); });
  }
  void check() const {
    for (std::size_t r = 0; r < ops.size(); ++r) {
      CAPTURE(r);
      CHECK_MESSAGE(ops[r].done(), ops[r].failure_detail);
      CHECK(std::equal(results[r].begin(), results[r].end(), expected[r].begin(),
                       expected[r].end()));
    }
  }

  operation_kind kind;
  rank_t size;
  std::vector<std::size_t> counts;
  std::deque<std::vector<std::int32_t>> ins;
  std::deque<std::vector<std::int32_t>> outs;
  std::vector<std::vector<std::int32_t>> expected;
  /// Where what is expected must be: in `outs`, or in place.
  std::vector<std::span<const std::int32_t>> results;
  std::vector<std::vector<std::size_t>> from_each;  ///< of all_to_all
  std::deque<collective_op> ops;
};

inline collective_run::collective_run(operation_kind k, rank_t members, std::size_t count,
                                      reduction by, rank_t root, bool in_place,
                                      bool variable)
    : kind(k), size(members), counts(static_cast<std::size_t>(members), count) {
  if (variable) {
    for (std::size_t r = 0; r < counts.size(); ++r) counts[r] = r == 1 ? 0 : count + r;
  }
  in_place = in_place || kind == operation_kind::broadcast;
  const std::size_t all = start_of(size);
  for (rank_t r = 0; r < size; ++r) {
    const bool is_root = r == root;
    const std::size_t start = start_of(r);
    const std::size_t part = part_of(r);
    std::vector<std::int32_t> in;
    std::vector<std::int32_t> out;
    std::vector<std::int32_t> result;
    const auto append = [&result](const std::vector<std::int32_t>& more, std::size_t from,
                                  std::size_t n) {
      result.insert(result.end(), more.begin() + static_cast<std::ptrdiff_t>(from),
                    more.begin() + static_cast<std::ptrdiff_t>(from + n));
    };
    const auto append_reduced = [&](std::size_t from, std::size_t n) {
      for (std::size_t i = from; i < from + n; ++i)
        result.push_back(reduced(by, size, i));
    };
    switch (kind) {
      case operation_kind::broadcast:
        in = contribution(r, count);
        result = contribution(root, count);
        break;
      case operation_kind::reduce:
        in = contribution(r, count);
        if (is_root) append_reduced(0, count);
        break;
      case operation_kind::all_reduce:
        in = contribution(r, count);
        append_reduced(0, count);
        break;
      case operation_kind::gather:
      case operation_kind::all_gather:
        in = contribution(r, part);
        if (is_root || kind == operation_kind::all_gather) {
          for (rank_t from = 0; from < size; ++from)
            append(contribution(from, part_of(from)), 0, part_of(from));
        }
        break;
      case operation_kind::scatter:
        if (is_root) in = contribution(root, all);
        append(contribution(root, all), start, part);
        break;
      case operation_kind::reduce_scatter:
        in = contribution(r, all);
        append_reduced(start, part);
        break;
      default:  // all_to_all
        in = contribution(r, all);
        for (rank_t from = 0; from < size; ++from)
          append(contribution(from, all), start, part);
    }
    out.assign(result.size(), -1);
    ins.push_back(std::move(in));
    outs.push_back(std::move(out));
    expected.push_back(std::move(result));
  }
  from_each.reserve(counts.size());
  for (rank_t r = 0; r < size; ++r) {
    const auto at = static_cast<std::size_t>(r);
    std::span<std::int32_t> in(ins[at]);
    std::span<std::int32_t> out(outs[at]);
    if (in_place) put_in_place(r, in, out);
    results.push_back(out);
    collective_op& op = ops.emplace_back(kind, const_buffer_view(in), buffer_view(out));
    op.part.by = by;
    op.part.root = root;
    op.part.is_variable = variable;
    op.part.source_counts = counts;
    op.part.target_counts = counts;
    if (kind == operation_kind::all_to_all) {
      op.part.target_counts = from_each.emplace_back(counts.size(), part_of(r));
    }
  }
}

inline void collective_run::put_in_place(rank_t r, std::span<std::int32_t>& in,
                                         std::span<std::int32_t>& out) {
  const auto at = static_cast<std::size_t>(r);
  if (out.empty() || in.empty()) return;
  switch (kind) {
    case operation_kind::broadcast:
    case operation_kind::reduce:
    case operation_kind::all_reduce:
      out = in;
      break;
    case operation_kind::gather:
    case operation_kind::all_gather: {
      const std::span<std::int32_t> own = out.subspan(start_of(r), in.size());
      std::copy(in.begin(), in.end(), own.begin());
      in = own;
      break;
    }
    case operation_kind::scatter:
    case operation_kind::reduce_scatter:
      out = std::span(ins[at]).subspan(start_of(r), out.size());
      break;
    default:
      break;
  }
}

}  // namespace manyworlds::host_tests
