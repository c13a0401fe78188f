#include "host/collective_algorithms.hpp"

#include <algorithm>

#include "host/algorithm_table.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

task<void> carry_out(schedule& x, algorithm use) {
  const collective_shape& s = x.shape();
  if (x.size() == 1) return copy_slices(x, s.in, s.out);
  const collective_function by = function_for(s.kind, use);
  MW_ASSERT(by, "an algorithm that is chosen can do its kind");
  return by(x);
}

task<void> copy_slices(schedule& x, std::span<const std::byte> from,
                       std::span<std::byte> into) {
  MW_ASSERT(from.size() == into.size(), "what is copied fits its place");
  if (from.data() == into.data()) co_return;
  for (std::size_t at = 0; at < from.size(); at += schedule::largest_slice) {
    if (at > 0) co_await x.yield();
    const std::size_t bytes = std::min(schedule::largest_slice, from.size() - at);
    copy_payload(into.data() + at, from.data() + at, bytes);
  }
}

task<void> combine_slices(schedule& x, std::span<const std::byte> low,
                          std::span<const std::byte> high, std::span<std::byte> into,
                          bool is_last) {
  for (std::size_t at = 0; at < into.size(); at += schedule::largest_slice) {
    if (at > 0) co_await x.yield();
    const std::size_t bytes = std::min(schedule::largest_slice, into.size() - at);
    const std::span<std::byte> sum = into.subspan(at, bytes);
    x.combine(low.subspan(at, bytes), high.subspan(at, bytes), sum);
    if (is_last) x.finish_reduction(sum);
  }
}

task<void> barrier_of_all(schedule& x) {
  for (rank_t d = 1; d < x.size(); ++d) {
    x.send(x.after(d), {});
    x.receive(x.after(-d), {});
  }
  co_await x.settled();
}

task<void> barrier_by_dissemination(schedule& x) {
  for (rank_t distance = 1; distance < x.size(); distance *= 2) {
    x.send(x.after(distance), {});
    x.receive(x.after(-distance), {});
    co_await x.settled();
  }
}

task<void> broadcast_to_all(schedule& x) {
  const collective_shape& s = x.shape();
  if (x.self() == s.root) {
    for (rank_t d = 1; d < x.size(); ++d) x.send(x.after(d), s.in);
  } else {
    x.receive(s.root, s.out);
  }
  co_await x.settled();
}

task<void> all_gather_at_once(schedule& x) {
  const collective_shape& s = x.shape();
  const std::span<std::byte> own = s.out_parts.of(s.out, x.self());
  // The others read from `in` while it is copied: they wait for nothing, and do not
  // read what was just written into this CPU's cache.
  for (rank_t d = 1; d < x.size(); ++d) {
    x.receive(x.after(-d), s.out_parts.of(s.out, x.after(-d)));
    x.send(x.after(d), s.in);
  }
  if (!copy_one_slice(s.in, own)) co_await copy_slices(x, s.in, own);
  co_await x.settled();
}

task<void> all_gather_in_ring(schedule& x) {
  const collective_shape& s = x.shape();
  co_await copy_slices(x, s.in, s.out_parts.of(s.out, x.self()));
  co_await gather_parts_in_ring(x, s.out_parts, s.out);
}

task<void> gather_at_root(schedule& x) {
  const collective_shape& s = x.shape();
  if (x.self() != s.root) {
    x.send(s.root, s.in);
  } else {
    for (rank_t d = 1; d < x.size(); ++d) {
      x.receive(x.after(d), s.out_parts.of(s.out, x.after(d)));
    }
    const auto own = s.out_parts.of(s.out, x.self());
    if (!copy_one_slice(s.in, own)) co_await copy_slices(x, s.in, own);
  }
  co_await x.settled();
}

task<void> scatter_from_root(schedule& x) {
  const collective_shape& s = x.shape();
  if (x.self() != s.root) {
    x.receive(s.root, s.out);
  } else {
    for (rank_t d = 1; d < x.size(); ++d) {
      x.send(x.after(d), s.in_parts.of(s.in, x.after(d)));
    }
    const auto own = s.in_parts.of(s.in, x.self());
    if (!copy_one_slice(own, s.out)) co_await copy_slices(x, own, s.out);
  }
  co_await x.settled();
}

// Each member begins with its neighbour, so that not all ask the same member first.
task<void> all_to_all_at_once(schedule& x) {
  const collective_shape& s = x.shape();
  for (rank_t d = 1; d < x.size(); ++d) {
    x.receive(x.after(-d), s.out_parts.of(s.out, x.after(-d)));
    x.send(x.after(d), s.in_parts.of(s.in, x.after(d)));
  }
  const auto from = s.in_parts.of(s.in, x.self());
  const auto into = s.out_parts.of(s.out, x.self());
  if (!copy_one_slice(from, into)) co_await copy_slices(x, from, into);
  co_await x.settled();
}

}  // namespace manyworlds::inline v0::detail::host
