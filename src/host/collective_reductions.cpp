// Reductions in one step, or by the parts of the members.
#include <algorithm>
#include <memory>

#include "host/collective_algorithms.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

/// Holds what all members contributed to one slice, by rank.
class contributions {
 public:
  contributions(schedule& x, std::size_t slice)
      : x_(x),
        slice_(slice),
        memory_(x.scratch(slice * static_cast<std::size_t>(x.size() - 1))) {}

  [[nodiscard]] std::span<std::byte> of(rank_t rank, std::size_t bytes) const {
    const rank_t place = rank < x_.self() ? rank : rank - 1;
    MW_ASSERT(rank != x_.self() && bytes <= slice_,
              "a contribution has room for a slice");
    return memory_.subspan(slice_ * static_cast<std::size_t>(place), bytes);
  }

  /// Returns how much of each contribution is combined at once: all of it stays in the
  /// cache and takes a part of a turn (law 9), for any number of members.
  [[nodiscard]] std::size_t step() const noexcept {
    constexpr std::size_t together = schedule::largest_slice / 2;
    constexpr std::size_t least = 1024;
    const auto others = static_cast<std::size_t>(x_.size() - 1);
    return std::max(together / others / 64 * 64, least);
  }

  /// Combines at most a step in the order of ranks, whichever member does it. `own` is
  /// this member's contribution, and may be `into`; the others' begin at `from`.
  void combine(std::span<const std::byte> own, std::span<std::byte> into,
               std::size_t from = 0) const {
    const std::size_t bytes = own.size();
    MW_ASSERT(bytes == into.size(), "a sum has the size of what is combined");
    const auto of = [this, from](rank_t rank, std::size_t count) {
      return this->of(rank, from + count).subspan(from);
    };
    const rank_t last = x_.size() - 1;
    std::span<const std::byte> low = x_.self() == 0 ? own : of(0, bytes);
    for (rank_t r = 1; r <= last; ++r) {
      const bool is_own = r == x_.self();
      const std::span<const std::byte> high = is_own ? own : of(r, bytes);
      // `own`'s place is not overwritten before its turn: the sum so far stays in what
      // has come.
      const std::span<std::byte> sum = r == last ? into
                                       : is_own  ? of(r - 1, bytes)
                                                 : of(r, bytes);
      x_.combine(low, high, sum);
      low = sum;
    }
    x_.finish_reduction(into);
  }

 private:
  schedule& x_;
  std::size_t slice_;
  std::span<std::byte> memory_;
};

task<void> combine_in_steps(schedule& x, const contributions& all,
                            std::span<const std::byte> own, std::span<std::byte> into) {
  const std::size_t step = all.step();
  for (std::size_t at = 0; at < own.size(); at += step) {
    if (at > 0) co_await x.yield_if_over_budget();
    const std::size_t bytes = std::min(step, own.size() - at);
    all.combine(own.subspan(at, bytes), into.subspan(at, bytes), at);
  }
}

/// Combines one step at once, without a coroutine. Returns false if there is more.
bool combine_one_step(const contributions& all, std::span<const std::byte> own,
                      std::span<std::byte> into) {
  if (own.size() > all.step()) return false;
  all.combine(own, into);
  return true;
}

/// Slices announced before they are reduced. With one, members that share a CPU kept
/// step slice by slice and spent a third of the time looking. A reduce of 16 MiB by
/// four members on two CPUs took 18.5 ms; with four slices 14.5, with eight 12.8.
constexpr std::size_t slices_ahead = 8;

/// Returns a size so large that starting a slice costs little, and so small that all
/// contributions to it stay in the cache, which two members may share.
std::size_t slice_for(const schedule& x, std::size_t whole) noexcept {
  constexpr std::size_t together = std::size_t{512} * 1024;
  // Well above what a receiver copies although no receive waits (`eager_limit`): it
  // would copy most of what is announced ahead.
  constexpr std::size_t least = std::size_t{128} * 1024;
  if (whole <= least) return std::max<std::size_t>(whole, 1);
  const auto others = static_cast<std::size_t>(std::max<rank_t>(x.size() - 1, 1));
  const std::size_t slice =
      std::clamp(together / others / 64 * 64, least, schedule::largest_slice);
  return std::min(slice, whole);
}

template <class Byte>
std::span<Byte> slice_of(std::span<Byte> part, std::size_t number, std::size_t slice) {
  const std::size_t at = std::min(number * slice, part.size());
  return part.subspan(at, std::min(slice, part.size() - at));
}

std::size_t slices_of(std::size_t bytes, std::size_t slice) {
  // Even zero bytes are one slice: it tells the others that this member has entered.
  return std::max<std::size_t>((bytes + slice - 1) / slice, 1);
}

// Both reduce this member's part of all members' `whole`, which `by` divides, into
// `own`, which may be its place in `whole`.

task<void> reduce_parts_directly(schedule& x, const parts& by,
                                 std::span<const std::byte> whole,
                                 std::span<std::byte> own) {
  const std::size_t longest = by.longest();
  const std::size_t slice = slice_for(x, longest);
  const std::size_t own_slices = slices_of(by.bytes(x.self()), slice);
  const std::size_t rounds = slices_of(longest, slice);
  const contributions all(x, slice);
  const std::span<const std::byte> mine = by.of(whole, x.self());
  const auto others = static_cast<std::size_t>(x.size() - 1);
  std::size_t announced = 0;
  for (std::size_t k = 0; k < rounds; ++k) {
    for (; announced < std::min(rounds, k + slices_ahead); ++announced) {
      // A member that has less to reduce than the others waits for them here. Not all
      // can wait: the member that is behind all others has what it receives next.
      co_await x.sends_left(2 * slices_ahead * others);
      for (rank_t d = 1; d < x.size(); ++d) {
        const auto part = by.of(whole, x.after(d));
        if (announced < slices_of(part.size(), slice)) {
          x.send(x.after(d), slice_of(part, announced, slice));
        }
      }
    }
    if (k >= own_slices) continue;
    const auto source = slice_of(mine, k, slice);
    for (rank_t d = 1; d < x.size(); ++d) {
      x.receive(x.after(-d), all.of(x.after(-d), source.size()));
    }
    co_await x.received();
    co_await combine_in_steps(x, all, source, slice_of(own, k, slice));
  }
  co_await x.settled();
}

// The sum of a part goes round and grows, until it comes to the member that owns the
// part.
task<void> reduce_parts_in_ring(schedule& x, const parts& by,
                                std::span<const std::byte> whole,
                                std::span<std::byte> own) {
  const std::size_t longest = by.longest();
  const std::span<std::byte> memory = x.scratch(2 * longest);
  std::span<const std::byte> going = by.of(whole, x.after(-1));
  for (rank_t step = 1; step < x.size(); ++step) {
    const auto here = by.of(whole, x.after(-1 - step));
    const bool is_last = step == x.size() - 1;
    const auto half = memory.subspan(step % 2 == 0 ? 0 : longest, here.size());
    x.send(x.after(1), going);
    x.receive(x.after(-1), half);
    co_await x.settled();
    const std::span<std::byte> sum = is_last ? own : half;
    co_await combine_slices(x, half, here, sum, is_last);
    going = sum;
  }
}

using part_reduction = task<void>(schedule&, const parts&, std::span<const std::byte>,
                                  std::span<std::byte>);
using part_gathering = task<void>(schedule&, const parts&, std::span<std::byte>);

task<void> all_reduce_by_parts(schedule& x, part_reduction* reduce,
                               part_gathering* gather) {
  const collective_shape& s = x.shape();
  const parts& by = s.in_parts;
  co_await reduce(x, by, s.in, by.of(s.out, x.self()));
  co_await gather(x, by, s.out);
}

task<void> reduce_by_parts(schedule& x, part_reduction* reduce) {
  const collective_shape& s = x.shape();
  const parts& by = s.in_parts;
  if (x.self() == s.root) {
    co_await reduce(x, by, s.in, by.of(s.out, x.self()));
    for (rank_t d = 1; d < x.size(); ++d) {
      x.receive(x.after(d), by.of(s.out, x.after(d)));
    }
    co_await x.settled();
    co_return;
  }
  // Its part of the sum needs a place: not the scratch, which the reduction uses.
  const std::size_t bytes = by.bytes(x.self());
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
  const std::span<std::byte> sum(memory.get(), bytes);
  co_await reduce(x, by, s.in, sum);
  x.send(s.root, sum);
  co_await x.settled();
}

}  // namespace

task<void> reduce_at_root(schedule& x) {
  const collective_shape& s = x.shape();
  const std::size_t slice = slice_for(x, s.in.size());
  const std::size_t slices = slices_of(s.in.size(), slice);
  if (x.self() != s.root) {
    for (std::size_t k = 0; k < slices; ++k) {
      co_await x.sends_left(4);
      x.send(s.root, slice_of(s.in, k, slice));
    }
    co_await x.settled();
    co_return;
  }
  const contributions all(x, slice);
  for (std::size_t k = 0; k < slices; ++k) {
    const auto own = slice_of(s.in, k, slice);
    for (rank_t d = 1; d < x.size(); ++d) {
      x.receive(x.after(d), all.of(x.after(d), own.size()));
    }
    co_await x.received();
    const auto sum = slice_of(s.out, k, slice);
    if (!combine_one_step(all, own, sum)) co_await combine_in_steps(x, all, own, sum);
  }
}

task<void> all_reduce_at_each(schedule& x) {
  const collective_shape& s = x.shape();
  const contributions all(x, s.in.size());
  for (rank_t d = 1; d < x.size(); ++d) {
    x.send(x.after(d), s.in);
    x.receive(x.after(-d), all.of(x.after(-d), s.in.size()));
  }
  // The sends must end too: `out` may be what is sent.
  co_await x.settled();
  if (!combine_one_step(all, s.in, s.out)) {
    co_await combine_in_steps(x, all, s.in, s.out);
  }
}

task<void> reduce_directly(schedule& x) {
  return reduce_by_parts(x, reduce_parts_directly);
}

task<void> reduce_in_ring(schedule& x) {
  return reduce_by_parts(x, reduce_parts_in_ring);
}

task<void> all_reduce_directly(schedule& x) {
  return all_reduce_by_parts(x, reduce_parts_directly, gather_parts_at_once);
}

task<void> all_reduce_in_ring(schedule& x) {
  return all_reduce_by_parts(x, reduce_parts_in_ring, gather_parts_in_ring);
}

task<void> reduce_scatter_directly(schedule& x) {
  const collective_shape& s = x.shape();
  return reduce_parts_directly(x, s.in_parts, s.in, s.out);
}

task<void> reduce_scatter_in_ring(schedule& x) {
  const collective_shape& s = x.shape();
  return reduce_parts_in_ring(x, s.in_parts, s.in, s.out);
}

}  // namespace manyworlds::inline v0::detail::host
